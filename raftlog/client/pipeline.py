"""Which batch of one partition may leave next, under which number, and what a failure means for the others.

Decides, without IO: everything that keeps a partition's records in order and free of duplicates.
Leaves to others: sending (``sender``), and recognising a batch that was sent before (the broker).

The rules:

1.  Batches are numbered in the order in which they leave, and a batch keeps its number (epoch and
    sequence) as long as any broker may have seen it.
2.  At most five batches lie between the oldest without an outcome and the newest that left: as many
    as a broker remembers. A retry of the oldest is therefore always recognised.
3.  Until the first answer, and after every failure, batches leave one by one. A broker that knows
    nothing of a producer takes any sequence, so a second batch must not overtake the first.
4.  After a failure nothing leaves until all that is in the air has landed. Then what has no outcome
    leaves again, in the old order and under the old numbers.
5.  A batch that is given up leaves a gap which nothing may follow: the epoch rises, numbers start at
    0, and a broker refuses what comes late from the old epoch. Batches that surely were not written
    get new numbers. Those that may have been are given up too, as unknown, since a new number
    could write them twice.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from raftlog.client.receipts import Batch
from raftlog.errors import CommitUnknown, NotSent, OutOfOrderSequence, ProducerFenced, RaftlogError
from raftlog.records.batch import EPOCH_MAX, SEQUENCE_MAX
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

UNNUMBERED = -1
_RENUMBERINGS_MAX = 5  # a broker that refuses every number does not keep a batch until its deadline


class _Place(enum.Enum):
    GROUND = enum.auto()
    AIR = enum.auto()
    GONE = enum.auto()  # it has its outcome


@dataclass(slots=True, eq=False)
class Shipment:
    """One batch under its number. ``encoded`` is what left last, ``identity`` what stands in it."""

    batch: Batch
    sequence: int = UNNUMBERED
    place: _Place = _Place.GROUND
    was_first: bool = False  # nothing without an outcome was before it when it left
    may_be_written: bool = False  # an attempt ended without a definite answer
    failure: RaftlogError | None = None
    earlier_failure: RaftlogError | None = None  # of the attempt before
    attempts: int = 0
    renumbered: int = 0  # how often a broker refused its number
    encoded: bytes = b""
    identity: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure led to: batches with their error, and what the first remaining one failed with.

    ``deadline`` is when that one is given up, in seconds of the clock.
    """

    given_up: list[tuple[Batch, RaftlogError]]
    retry_after: RaftlogError | None
    attempts: int = 0
    deadline: float = math.inf


class Pipeline:
    """The batches of one partition that have left and have no outcome yet, and the next number.

    ``in_flight_max`` is 1 for a producer without an identity: nothing but waiting keeps its order.
    """

    def __init__(self, *, in_flight_max: int = PRODUCER_BATCHES_MAX, retries: bool = True) -> None:
        self._in_flight_max = in_flight_max
        self._retries = retries
        self._shipments: deque[Shipment] = deque()
        self._in_air = 0
        self._next_sequence = 0
        self._is_proven = False
        self._has_failed = False
        self.epoch = 0
        self.lives = 0  # epochs that were used up; a new producer id is due when it rises

    @property
    def must_settle(self) -> bool:
        """Whether something failed and everything has landed: ``settle`` comes next."""
        return self._has_failed and not self._in_air

    @property
    def is_idle(self) -> bool:
        """Whether nothing is without an outcome."""
        return not self._shipments

    def forget_proof(self) -> None:
        """Go one by one again: brokers may have forgotten this producer."""
        self._is_proven = False

    def next_to_send(self, take: Callable[[], Batch | None]) -> Shipment | None:
        """The shipment that leaves now, or ``None``. ``take`` gives the next batch when there is one."""
        if self._has_failed or self._in_air >= (self._in_flight_max if self._is_proven else 1):
            return None
        shipment = next((one for one in self._shipments if one.place is _Place.GROUND), None)
        if shipment is None:
            if len(self._shipments) >= self._in_flight_max:
                return None
            batch = take()
            if batch is None:
                return None
            shipment = Shipment(batch)
            self._shipments.append(shipment)
        if shipment.sequence == UNNUMBERED:
            shipment.sequence = self._next_sequence
            self._next_sequence = (self._next_sequence + len(shipment.batch.records)) & SEQUENCE_MAX
        shipment.was_first = self._shipments[0] is shipment
        shipment.place = _Place.AIR
        shipment.attempts += 1
        self._in_air += 1
        return shipment

    def delivered(self, shipment: Shipment) -> None:
        """The broker has it."""
        self._land(shipment, _Place.GONE)
        if not self._has_failed:
            self._is_proven = True
        self._drop_gone()

    def failed(self, shipment: Shipment, error: RaftlogError) -> None:
        """An attempt ended with an error."""
        self._land(shipment, _Place.GROUND)
        shipment.failure = error
        shipment.may_be_written |= not error.is_definite
        self._has_failed = True

    def settle(self, now: float) -> Verdict:
        """After a failure, once all have landed: give up what must be, and let the rest leave again."""
        given_up: list[tuple[Batch, RaftlogError]] = []
        self._drop_gone()
        while self._shipments and (first := self._shipments[0]).failure is not None:
            if not self._must_be_given_up(first, now):
                break
            if not self._only_needs_a_number(first):
                given_up.append((first.batch, _last_word(first)))
                self._shipments.popleft()
            given_up += self._begin_epoch()
        self._has_failed = self._is_proven = False
        verdict = Verdict(given_up, None)
        if self._shipments:
            first = self._shipments[0]
            verdict = Verdict(given_up, first.failure, first.attempts, first.batch.deadline)
        for shipment in self._shipments:
            shipment.earlier_failure, shipment.failure = shipment.failure, None
        return verdict

    def abandon(self) -> list[tuple[Batch, RaftlogError]]:
        """Give up everything, in the air or not, since the producer is closed."""
        closed = NotSent("the producer was closed before this was sent")
        left = [one for one in self._shipments if one.place is not _Place.GONE]
        for shipment in left:
            if shipment.place is _Place.AIR:
                shipment.may_be_written = True
            shipment.failure = closed
        self._shipments.clear()
        return [(shipment.batch, _last_word(shipment)) for shipment in left]

    def _land(self, shipment: Shipment, place: _Place) -> None:
        shipment.place = place
        self._in_air -= 1

    def _drop_gone(self) -> None:
        while self._shipments and self._shipments[0].place is _Place.GONE:
            self._shipments.popleft()

    def _must_be_given_up(self, first: Shipment, now: float) -> bool:
        """Whether the same again cannot help the first one, or may not be tried."""
        error = first.failure
        assert error is not None  # only asked of what failed
        if now >= first.batch.deadline or not self._retries:
            return True
        if isinstance(error, OutOfOrderSequence):  # behind another one that failed, it may just go again
            return first.was_first and first.sequence != UNNUMBERED
        return not error.retryable

    def _only_needs_a_number(self, first: Shipment) -> bool:
        """A broker lost track of this producer, and this batch surely was not written."""
        return (
            isinstance(first.failure, OutOfOrderSequence | ProducerFenced)
            and self._retries
            and not first.may_be_written
            and first.renumbered < _RENUMBERINGS_MAX
        )

    def _begin_epoch(self) -> list[tuple[Batch, RaftlogError]]:
        """Rule 5. The first one is given up already, or gets a new number like the others."""
        lost: list[tuple[Batch, RaftlogError]] = []
        kept: deque[Shipment] = deque()
        for shipment in self._shipments:
            if shipment.place is _Place.GONE:
                continue
            if shipment.may_be_written:
                lost.append((shipment.batch, _last_word(shipment)))
                continue
            shipment.sequence = UNNUMBERED
            if isinstance(shipment.failure, OutOfOrderSequence | ProducerFenced):
                shipment.failure = None
                shipment.renumbered += 1
            kept.append(shipment)
        self._shipments = kept
        self._next_sequence = 0
        self.epoch += 1
        if self.epoch > EPOCH_MAX:
            self.epoch = 0
            self.lives += 1
        return lost


def _last_word(shipment: Shipment) -> RaftlogError:
    """The error a user sees: never a definite one for a batch that may be written."""
    failure = shipment.failure
    if failure is not None and not (failure.is_definite and shipment.may_be_written):
        return failure
    why = "a batch before it was given up" if failure is None else str(failure)
    unknown = CommitUnknown(f"an attempt to send this was not answered, and then: {why}")
    unknown.__cause__ = failure
    return unknown
