"""Objects of another process: after a fork the child has the objects of a client, but not its thread.

Decides: which objects are marked in the child, so that no call has to compare process ids. Leaves to others:
what a marked object refuses (``portal``, ``producer``).
"""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet

FORKED: Final = "this client was created in another process; create one after the fork"


class Forkable(Protocol):
    """An object that does not work in a child process."""

    def end_in_child(self) -> None:
        """Note that the process is a forked child. Takes no lock: another thread may have held it."""


_made: WeakSet[Forkable] = WeakSet()


def mark_in_children(one: Forkable) -> None:
    """Call its ``end_in_child`` in every process that is forked from now on."""
    _made.add(one)


def _end_all() -> None:
    for one in tuple(_made):
        one.end_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)
