"""Defines the history of a run as clients saw it: the only input of the checkers.

A transaction is all sends and polls of one process with an equal ``txn``, a number that is unique in the
history; the transaction's outcome is their outcome. A send or poll without a number is a separate operation.
A transaction that is aborted has failed, and so has a transaction whose commit was never requested.

Times are seconds of one monotonic clock. A send whose outcome is ``UNKNOWN`` may have been stored at any time
after it was invoked, or never. Only a response that guarantees that nothing was written counts as ``FAILED``.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise


class Outcome(enum.Enum):
    """The outcome of an operation, as its client knows it."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One value sent to one partition, with all retries of the send. Values are unique in a history.

    The times are the times of this send, also in a transaction. ``offset`` is where the value was stored,
    also if its transaction was aborted later. After an unknown outcome a client continues as another process,
    because the send may still be stored after later sends of the client.
    """

    process: int
    partition: int
    value: str
    invoked_s: float
    completed_s: float
    outcome: Outcome
    offset: int | None = None
    txn: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Consecutive records that one process read from one partition, in order.

    ``log_start``: the response reported that all records below this offset are deleted, and the process
    continued there. ``rebalanced``: the consumer group moved the partition away, or back, during the
    operation.
    """

    process: int
    partition: int
    invoked_s: float
    completed_s: float
    records: tuple[tuple[int, str], ...]  # (offset, value)
    log_start: int = 0
    outcome: Outcome = Outcome.ACKNOWLEDGED
    txn: int | None = None
    rebalanced: bool = False


class AssignKind(enum.Enum):
    """The way in which a process gets its partitions. With ``CRASH`` it loses all of them."""

    ASSIGN = "assign"
    SUBSCRIBE = "subscribe"
    CRASH = "crash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Assignment of partitions to a process from now on. The process continues partitions that it had
    before.
    """

    process: int
    kind: AssignKind
    partitions: tuple[int, ...]
    invoked_s: float
    completed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A write of a consumer group's committed offset."""

    group: str
    partition: int
    offset: int
    invoked_s: float
    completed_s: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A read of a consumer group's committed offset; None if no offset is committed."""

    group: str
    partition: int
    offset: int | None
    invoked_s: float
    completed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A linearizable read of the end of a partition: the offset after the newest committed record.

    ``last_stable`` is the end for readers of committed transactions, read at this time or later.
    """

    partition: int
    invoked_s: float
    completed_s: float
    high_watermark: int
    last_stable: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The opening of a transactional id by a process, which fences the processes that opened the id
    before.
    """

    process: int
    transactional_id: str
    invoked_s: float
    completed_s: float
    outcome: Outcome


class Decision(enum.Enum):
    """The decision that ends a transaction: committed or aborted."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The request of a process to end a transaction, with all retries of the request.

    ``decided`` is the outcome in the response. It is aborted if the request was refused permanently, because
    then no record of the transaction is visible. It is None without a response, or if the outcome was
    forgotten.
    """

    process: int
    txn: int
    asked: Decision
    invoked_s: float
    completed_s: float
    decided: Decision | None


@dataclass(slots=True)
class History:
    """All operations of a run; ``final`` polls read every partition from its start to its end.

    ``final_looks`` are the looks at the end of the run, when every transaction must have ended. Without
    ``has_final_read``, values that no poll returned may still be in the log.
    """

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    final: list[Poll] = field(default_factory=list)
    assigns: list[Assign] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    opens: list[Open] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    final_looks: list[Look] = field(default_factory=list)
    has_final_read: bool = field(default=True, compare=False)

    def all_polls(self) -> Iterator[Poll]:
        """Yield all polls; the final polls come last."""
        return chain(self.polls, self.final)

    def log_starts(self) -> dict[int, int]:
        """Return the log start of each partition in the final reads. Records below the log start are
        deleted.
        """
        starts: dict[int, int] = {}
        for poll in self.final:
            starts[poll.partition] = max(starts.get(poll.partition, 0), poll.log_start)
        return starts

    def count(self, outcome: Outcome) -> int:
        """Return the number of sends with this outcome."""
        return sum(send.outcome is outcome for send in self.sends)

    def transactions(self) -> Counter[Outcome]:
        """Return the number of transactions with each outcome, without transactions that sent no value."""
        return Counter({send.txn: send.outcome for send in self.sends if send.txn is not None}.values())

    def longest_silence_s(self, begins_s: float, ends_s: float) -> float:
        """Return the longest time in a window in which a partition acknowledged no send, in seconds.

        This is an outage as clients see it: from the last acknowledgement before the outage to the first
        after it.
        """
        times: dict[int, list[float]] = {}
        for send in self.sends:
            if send.outcome is Outcome.ACKNOWLEDGED:
                times.setdefault(send.partition, []).append(send.completed_s)
        longest = 0.0
        for moments in times.values():
            moments.sort()
            for before, after in pairwise([*moments, max(ends_s, moments[-1])]):
                if after > begins_s and before < ends_s:
                    longest = max(longest, after - before)
        return longest
