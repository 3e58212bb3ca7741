"""The decisions of a coordinator, as values. Nothing is decided here; ``coordinator`` carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from raftlog.errors import RaftlogError

RECORDS_PER_BATCH: Final = 1_000

RequestId = int
Row = TypeVar("Row")
Reply = TypeVar("Reply")
Request_contra = TypeVar("Request_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class Answer(Generic[Reply]):
    """Send this to the caller once all records before it are committed, or at once if it is settled.

    A settled answer says nothing but what is committed already.
    """

    request_id: RequestId
    reply: Reply | RaftlogError
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Write(Generic[Row]):
    """Append these to the partition: in one batch, unless there are more than ``RECORDS_PER_BATCH``.

    What ``frees_room`` may use the reserve of a full disk: retention stops at open transactions, and at
    what groups have yet to consume.
    """

    rows: tuple[Row, ...]
    frees_room: bool = False


class Effect:
    """Carry this out once all records before it are committed, or at once if it is settled.

    Packages have kinds of their own.
    """

    __slots__ = ()
    is_settled: ClassVar[bool] = False


class Decisions(Protocol[Request_contra]):
    """The decisions in one epoch of a leader. They do no IO, and begin with the committed state."""

    def take(self) -> list[Any]:  # of Answer, Write and Effect
        """The answers, writes and effects that are wanted since the last call, in order."""

    def next_deadline_ms(self) -> int:
        """When ``tick`` has something to do, at the latest."""

    def receive(self, request_id: RequestId, request: Request_contra, now_ms: int, wall_ms: int) -> None:
        """Answered now, or later. A refusal is an answer, too."""

    def forget(self, request_id: RequestId, request: Request_contra) -> None:
        """The caller has gone."""

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End what is due."""

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """Forget what is too old, now and then. It stays while no time is trusted (None)."""
