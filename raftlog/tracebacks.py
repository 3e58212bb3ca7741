"""Frees the objects that an error keeps alive after the error was answered.

The frames of a traceback keep their local variables, for instance the body of a refused request. If a local
variable refers to the error itself, the two form a cycle. Only the garbage collector frees a cycle, and it
may run much later.
"""

from __future__ import annotations


def release(error: BaseException) -> None:
    """Drop the tracebacks of an error, of its causes and of its contexts."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += [known for known in (each.__cause__, each.__context__) if known is not None]
