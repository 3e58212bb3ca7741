"""The state machine that a Raft group replicates: the contract between the driver and the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

Entry_contra = TypeVar("Entry_contra", contravariant=True)
Reply_co = TypeVar("Reply_co", covariant=True)


class StateMachine(Protocol[Entry_contra, Reply_co]):
    """Deterministic: the same entries in the same order give the same state.

    No clock, no randomness, no IO, no dependence on dict or set order. A command that cannot
    be carried out is answered with an error reply; ``apply`` raises only when the state itself
    is broken.
    """

    def apply(self, entry: Entry_contra) -> Reply_co:
        """Take in one committed entry, control entries too. The reply goes to its proposer, if one waits."""

    def snapshot(self) -> bytes:
        """The whole state, versioned, in bytes that are equal on every replica."""

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a snapshot, perhaps on another thread than the machine's, and change nothing.

        The returned call makes the machine the state that ``snapshot`` describes, in little time. An empty
        snapshot means the initial state.
        """


class Restorable(Protocol):
    """A state that is made without arguments."""

    def restore(self, snapshot: bytes) -> None:
        """Replace all values by the values of a snapshot."""


def restored_aside(state: Restorable, snapshot: bytes) -> Callable[[], None]:
    """Restore a snapshot into a second state. The returned call gives ``state`` its values."""
    another = type(state)()
    another.restore(snapshot)
    return lambda: vars(state).update(vars(another))
