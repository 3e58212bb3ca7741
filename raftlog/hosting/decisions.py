"""The outputs of a coordinator's decisions, as values; ``coordinator`` carries them out."""

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
    """A reply to send once all records before it are committed, or at once if the reply is settled.

    A settled reply depends only on committed records.
    """

    request_id: RequestId
    reply: Reply | RaftlogError
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Write(Generic[Row]):
    """Rows to append to the partition, in one batch, unless they are more than ``RECORDS_PER_BATCH``.

    A write that ``frees_room`` may use the reserve of a full disk: retention stops at open transactions, and
    at records that groups have yet to consume.
    """

    rows: tuple[Row, ...]
    frees_room: bool = False


class Effect:
    """Work to carry out once all records before it are committed, or at once if the effect is settled.

    Packages define their own kinds of effects.
    """

    __slots__ = ()
    is_settled: ClassVar[bool] = False


class Decisions(Protocol[Request_contra]):
    """The decisions of one leader in one epoch. They do no IO, and begin with the committed state."""

    def take(self) -> list[Any]:  # of Answer, Write and Effect
        """Return and remove the answers, writes and effects since the last call, in order."""

    def next_deadline_ms(self) -> int:
        """The time (ms) at which ``tick`` must be called at the latest."""

    def receive(self, request_id: RequestId, request: Request_contra, now_ms: int, wall_ms: int) -> None:
        """Handle a request; its answer is output now or later. A refusal is an answer, too."""

    def forget(self, request_id: RequestId, request: Request_contra) -> None:
        """Forget a request whose caller no longer waits."""

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End all leases, sessions and waits whose deadline has passed."""

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """Forget rows that are too old; no row is too old while no time is trusted (None).

        Called at intervals.
        """
