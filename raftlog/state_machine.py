"""The contract of a state machine that a Raft group replicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Entry_contra = TypeVar("Entry_contra", contravariant=True)
Reply_co = TypeVar("Reply_co", covariant=True)


class StateMachine(Protocol[Entry_contra, Reply_co]):
    """A deterministic state machine: equal entries in equal order give an equal state.

    It uses no clock, no randomness and no IO, and does not depend on the order of a dict or set. A command
    that cannot be carried out is answered with an error reply; ``apply`` raises only when the state itself
    is broken.
    """

    def apply(self, entry: Entry_contra) -> Reply_co:
        """Apply one committed entry, also a control entry; the reply is for its proposer, if that waits."""

    def snapshot(self) -> bytes:
        """The whole state as bytes with a version number; equal states have equal bytes on every replica."""

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a snapshot without a change to the machine; return a function that adopts the decoded state.

        This method may be called on another thread than ``apply``. The returned function quickly replaces the
        machine's state. An empty snapshot means the initial state.
        """


class Restorable(Protocol):
    """A state whose constructor takes no arguments."""

    def restore(self, snapshot: bytes) -> None:
        """Replace all values with the values of a snapshot."""


def restored_aside(state: Restorable, snapshot: bytes) -> Callable[[], None]:
    """Restore a snapshot into a new object; the returned function moves its values into ``state``."""
    another = type(state)()
    another.restore(snapshot)
    return lambda: vars(state).update(vars(another))
