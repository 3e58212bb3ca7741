"""Orders the batches of one partition: the next batch to send, its sequence, and the effect of failures.

Decides, without IO: everything that keeps a partition's records in order and free of duplicates.
Leaves to others: sending (``sender``), and detecting duplicates (the broker).

The rules:

1.  Batches are numbered in the order in which they are sent, and a batch keeps its number (epoch and
    sequence) as long as any broker may have seen it.
2.  At most five batches are between the oldest without an outcome and the newest sent one: as many
    as a broker remembers. A retry of the oldest is therefore always recognised.
3.  Until the first response, and after every failure, batches are sent one by one. A broker without
    state of a producer accepts any sequence, so a second batch must not overtake the first.
4.  After a failure nothing is sent until no batch is in flight. Then the batches without an outcome
    are sent again, in the same order with the same numbers.
5.  A failed batch leaves a gap, and no batch may follow it in the same epoch: the epoch rises, numbers
    restart at 0, and a broker refuses late batches of the old epoch. Batches that were definitely not
    written get new numbers. Batches that may have been written fail, too, as unknown, since a new number
    could duplicate them.
6.  A transaction has one epoch. Its first failed batch decides that it is aborted, so all later batches
    fail, too, and get no new numbers.
7.  A decommissioned partition refuses the oldest batch only if it does not have this batch and will never
    have it; then it has no later batch either. All batches are handed back, for other partitions. Their
    numbers are not used again.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raftlog.client.receipts import Batch
from raftlog.errors import (
    CommitUnknown,
    NotSent,
    OutOfOrderSequence,
    PartitionDecommissioned,
    PartitionNotFound,
    ProducerFenced,
    RaftlogError,
)
from raftlog.records.batch import EPOCH_MAX, SEQUENCE_MAX
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

UNNUMBERED = -1
_RENUMBERINGS_MAX = 5  # a broker that refuses every number must not delay a batch until its deadline


class _State(enum.Enum):
    QUEUED = enum.auto()
    IN_FLIGHT = enum.auto()
    DONE = enum.auto()  # the outcome is known


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """One batch with its number.

    ``encoded`` are the bytes last sent, ``identity`` is the producer in these bytes.
    """

    batch: Batch
    sequence: int = UNNUMBERED
    place: _State = _State.QUEUED
    was_first: bool = False  # no batch without an outcome preceded it when it was sent
    may_be_written: bool = False  # an attempt ended with an unknown outcome
    failure: RaftlogError | None = None
    earlier_failure: RaftlogError | None = None  # the error of the previous attempt
    attempts: int = 0
    renumbered: int = 0  # number of times that a broker refused its number
    encoded: bytes = b""
    identity: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """The consequence of a failure.

    ``given_up`` has the failed batches with their errors, ``retry_after`` the error of the first batch to
    retry. The batches in ``handed_back`` were not stored, because the partition takes no more records.
    ``deadline`` is the time at which the first remaining batch fails, in seconds of the clock.
    """

    given_up: list[tuple[Batch, RaftlogError]]
    retry_after: RaftlogError | None
    attempts: int = 0
    deadline: float = math.inf
    handed_back: Sequence[Batch] = ()


class Pipeline:
    """The batches of one partition that were sent and have no outcome yet, and the next sequence number.

    ``in_flight_max`` is 1 for a producer without a producer id, which keeps records in order only by sending
    one batch at a time. ``transaction_epoch`` is the epoch of a transaction.
    """

    def __init__(
        self,
        *,
        in_flight_max: int = PRODUCER_BATCHES_MAX,
        retries: bool = True,
        transaction_epoch: int | None = None,
    ) -> None:
        self._in_flight_max = in_flight_max
        self._retries = retries
        self._in_transaction = transaction_epoch is not None
        self._in_flight: deque[InFlightBatch] = deque()
        self._in_air = 0
        self._next_sequence = 0
        self._is_proven = False
        self._has_failed = False
        self.epoch = transaction_epoch or 0
        self.generation = 0  # used-up epochs; each needs a new producer id

    @property
    def must_settle(self) -> bool:
        """True if a batch has failed and none is in flight: the next call must be ``settle``."""
        return self._has_failed and not self._in_air

    @property
    def is_idle(self) -> bool:
        """True if every batch has its outcome."""
        return not self._in_flight

    def forget_proof(self) -> None:
        """From now on send batches one by one: brokers may have forgotten this producer."""
        self._is_proven = False

    def next_to_send(self, take: Callable[[], Batch | None]) -> InFlightBatch | None:
        """The batch to send now, or ``None``. ``take`` returns the next batch from the buffer, if any."""
        if self._has_failed or self._in_air >= (self._in_flight_max if self._is_proven else 1):
            return None
        in_flight = next((one for one in self._in_flight if one.place is _State.QUEUED), None)
        if in_flight is None:
            if len(self._in_flight) >= self._in_flight_max:
                return None
            batch = take()
            if batch is None:
                return None
            in_flight = InFlightBatch(batch)
            self._in_flight.append(in_flight)
        if in_flight.sequence == UNNUMBERED:
            in_flight.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + len(in_flight.batch.records)) & SEQUENCE_MAX
        in_flight.was_first = self._in_flight[0] is in_flight
        in_flight.place = _State.IN_FLIGHT
        in_flight.attempts += 1
        self._in_air += 1
        return in_flight

    def delivered(self, in_flight: InFlightBatch) -> None:
        """Note that the batch is stored."""
        self._land(in_flight, _State.DONE)
        if not self._has_failed:
            self._is_proven = True
        self._drop_gone()

    def failed(self, in_flight: InFlightBatch, error: RaftlogError) -> None:
        """Note that an attempt ended with an error."""
        self._land(in_flight, _State.QUEUED)
        in_flight.failure = error
        in_flight.may_be_written |= not error.is_definite
        self._has_failed = True

    def settle(self, now: float) -> RetryDecision:
        """Fail the batches that cannot be retried, and queue all other batches.

        Call this when ``must_settle``.
        """
        given_up: list[tuple[Batch, RaftlogError]] = []
        self._drop_gone()
        if self._in_flight and self._is_turned_away(self._in_flight[0]):
            return RetryDecision(given_up, None, handed_back=self._hand_back())
        while self._in_flight and (first := self._in_flight[0]).failure is not None:
            if not self._must_be_given_up(first, now):
                break
            if not self._only_needs_a_number(first):
                given_up.append((first.batch, _last_word(first)))
                self._in_flight.popleft()
            given_up += self._give_up_others() if self._in_transaction else self._begin_epoch()
        self._has_failed = self._is_proven = False
        decision = RetryDecision(given_up, None)
        if self._in_flight:
            first = self._in_flight[0]
            decision = RetryDecision(given_up, first.failure, first.attempts, first.batch.deadline)
        for in_flight in self._in_flight:
            in_flight.earlier_failure, in_flight.failure = in_flight.failure, None
        return decision

    def abandon(self) -> list[tuple[Batch, RaftlogError]]:
        """Fail all batches, in flight or not, because the producer is closed."""
        closed = NotSent("the producer was closed before the record was sent")
        left = [one for one in self._in_flight if one.place is not _State.DONE]
        for in_flight in left:
            if in_flight.place is _State.IN_FLIGHT:
                in_flight.may_be_written = True
            in_flight.failure = closed
        self._in_flight.clear()
        return [(in_flight.batch, _last_word(in_flight)) for in_flight in left]

    def _land(self, in_flight: InFlightBatch, place: _State) -> None:
        in_flight.place = place
        self._in_air -= 1

    def _drop_gone(self) -> None:
        while self._in_flight and self._in_flight[0].place is _State.DONE:
            self._in_flight.popleft()

    def _is_turned_away(self, first: InFlightBatch) -> bool:
        """Whether to hand all batches back (rule 7).

        A removed partition cannot say which batches it stored.
        """
        if isinstance(first.failure, PartitionDecommissioned) and self._in_flight_max > 1:
            return True  # the partition recognises a stored batch by its number
        is_gone = isinstance(first.failure, PartitionDecommissioned | PartitionNotFound)
        return is_gone and not first.may_be_written

    def _hand_back(self) -> list[Batch]:
        left = [one.batch for one in self._in_flight if one.place is not _State.DONE]
        self._in_flight.clear()
        self._has_failed = self._is_proven = False
        if not self._in_transaction:
            self._begin_epoch()
        return left

    def _must_be_given_up(self, first: InFlightBatch, now: float) -> bool:
        """Whether the first batch must fail, because a retry cannot help or is not allowed."""
        error = first.failure
        assert error is not None  # called only after a failure
        if now >= first.batch.deadline or not self._retries:
            return True
        if isinstance(error, OutOfOrderSequence):  # after a failure of an earlier batch it may be retried
            return first.was_first and first.sequence != UNNUMBERED
        return not error.retryable

    def _only_needs_a_number(self, first: InFlightBatch) -> bool:
        """Whether a retry needs only a new number: a broker lost the producer's state and wrote no batch."""
        return (
            isinstance(first.failure, OutOfOrderSequence | ProducerFenced)
            and self._retries
            and not first.may_be_written
            and first.renumbered < _RENUMBERINGS_MAX
        )

    def _give_up_others(self) -> list[tuple[Batch, RaftlogError]]:
        """Fail the remaining batches of a transaction (rule 6). The first batch has failed already."""
        others = [one for one in self._in_flight if one.place is not _State.DONE]
        self._in_flight.clear()
        for one in others:
            one.failure = one.failure or NotSent("an earlier batch of its transaction has failed")
        return [(one.batch, _last_word(one)) for one in others]

    def _begin_epoch(self) -> list[tuple[Batch, RaftlogError]]:
        """Begin the next epoch (rule 5). The first batch has failed already, or gets a new number, too."""
        lost: list[tuple[Batch, RaftlogError]] = []
        kept: deque[InFlightBatch] = deque()
        for in_flight in self._in_flight:
            if in_flight.place is _State.DONE:
                continue
            if in_flight.may_be_written:
                lost.append((in_flight.batch, _last_word(in_flight)))
                continue
            in_flight.sequence = UNNUMBERED
            if isinstance(in_flight.failure, OutOfOrderSequence | ProducerFenced):
                in_flight.failure = None
                in_flight.renumbered += 1
            kept.append(in_flight)
        self._in_flight = kept
        self._next_sequence = 0
        self.epoch += 1
        if self.epoch > EPOCH_MAX:
            self.epoch = 0
            self.generation += 1
        return lost


def _last_word(in_flight: InFlightBatch) -> RaftlogError:
    """The error for the user: never a definite error for a batch that may be written."""
    failure = in_flight.failure
    if failure is not None and not (failure.is_definite and in_flight.may_be_written):
        return failure
    why = "an earlier batch has failed" if failure is None else str(failure)
    unknown = CommitUnknown(f"an attempt to send the record got no response, and then: {why}")
    unknown.__cause__ = failure
    return unknown
