"""Marks the objects of a client after a fork: the child process has the objects, but not the client's thread.

Decides: which objects are marked in the child, so that no call has to compare process ids. Leaves to others:
which calls a marked object refuses (``portal``, ``producer``).
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

FORKED: Final = "this client was created in the parent process; create a client after the fork"


class Forkable(Protocol):
    """An object that does not work in a child process."""

    def end_in_child(self) -> None:
        """Note that the process is a forked child.

        Takes no lock: a thread of the parent may have held the lock.
        """


_made: WeakSet[Forkable] = WeakSet()


def mark_in_children(one: Forkable) -> None:
    """Call ``end_in_child`` of this object in every process that is forked from now on."""
    _made.add(one)


def _end_all() -> None:
    for one in tuple(_made):
        one.end_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)
