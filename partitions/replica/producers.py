"""Detects duplicates: batches that a producer has sent before, so that a retry is harmless.

Decides: whether a batch is new, a duplicate, out of order, or from a fenced producer (``InFlight.check``).
Leaves to others: the table of applied batches (``producer_table``), when a batch is applied (``machine``),
and the response (``replica``).

Applied batches and batches in flight are stored separately. ``ProducerTable`` is part of every replica's
state. ``InFlight`` belongs to one leader epoch: it has the batches that this leader has appended and not
applied yet. A leader that steps down discards ``InFlight``. The next leader finds the discarded batches in
its log, as far as they were replicated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from partitions.replica.producer_table import NO_SEQUENCE, ProducerTable, Sequenced
from raftlog.errors import (
    InvalidRequest,
    NotEnoughReplicas,
    OutOfOrderSequence,
    Overloaded,
    PartitionDecommissioned,
    ProducerFenced,
    QuotaExceeded,
    StorageFull,
)
from raftlog.records.batch import SEQUENCE_MAX, BatchHeader
from raftlog.types import Index, Offset, Term
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

Handle = TypeVar("Handle")

REFUSALS: Final = (
    InvalidRequest,
    NotEnoughReplicas,
    Overloaded,
    PartitionDecommissioned,
    QuotaExceeded,
    StorageFull,
)
"""Refusals that depend on the current state: an earlier attempt of the refused batch may have been stored."""


@dataclass(frozen=True, slots=True)
class Known(Generic[Handle]):
    """Position of batches that were appended before.

    ``handle`` is the proposal of the batches, or None once they are applied.
    """

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int
    leader_epoch: Term
    handle: Handle | None
    in_one_run: bool = True  # whether their offsets are consecutive


@dataclass(frozen=True, slots=True)
class Begun:
    """A repeated request of which a crash left only the first ``count`` batches.

    Its other batches are new.
    """

    count: int


class _Pending(NamedTuple, Generic[Handle]):
    epoch: int
    batch: Sequenced
    handle: Handle


class InFlight(Generic[Handle]):
    """A leader's view of its producers: the applied table, and the batches appended since.

    Call ``check``, propose and ``add`` without awaiting in between: otherwise two retries of one batch could
    both be appended.
    """

    def __init__(self, table: ProducerTable) -> None:
        self._table = table
        self._pending: dict[int, deque[_Pending[Handle]]] = {}
        self._order: deque[tuple[int, int]] = deque()  # (last offset, producer id), in log order

    def __len__(self) -> int:
        return len(self._order)

    def check(self, headers: Sequence[BatchHeader]) -> Known[Handle] | Begun | None:
        """Find out which batches of a request were appended before.

        Returns None if no batch was appended before, so that all may be appended; ``Known`` if all were;
        ``Begun`` if only the first batches were, so that the other batches may be appended. Raises
        ``OutOfOrderSequence``, ``ProducerFenced``, and ``InvalidRequest`` if batches other than the first
        were appended before.
        """
        if len(headers) == 1:
            header = headers[0]
            if header.producer_id < 0:
                return None
            tail = self._tail(header.producer_id)
            if tail is None or _follows(header, tail):
                return None  # the usual case: the code below handles retries and wrong sequences
            found = self._find(header) if header.is_sequenced else None
            if found is not None:
                return _known([found])
            _expect(header, tail)
            return None
        return self._check_many(headers)

    def unknown(self, headers: Iterable[BatchHeader]) -> set[int]:
        """The ids of the producers of these batches that have no batch in this partition, applied or in
        flight.
        """
        ids = {header.producer_id for header in headers if header.producer_id >= 0}
        return {one for one in ids if one not in self._pending and one not in self._table}

    def add(
        self,
        headers: Sequence[BatchHeader],
        first: Index,
        term: Term,
        append_time_ms: int | None,
        handle: Handle,
    ) -> None:
        """Remember batches that were just appended in ``term``, with ``first`` as first offset."""
        base_offset: int = first
        for header in headers:
            if header.is_sequenced:
                timestamp_ms = header.max_timestamp if append_time_ms is None else append_time_ms
                batch = _sequenced(header, base_offset, timestamp_ms, term)
                pending = self._pending.setdefault(header.producer_id, deque())
                pending.append(_Pending(header.producer_epoch, batch, handle))
                self._order.append((batch.last_offset, header.producer_id))
            base_offset += header.last_offset_delta + 1

    def add_marker(self, producer_id: int, epoch: int, index: Index, handle: Handle) -> None:
        """Remember the marker of a transaction that was just appended.

        From now on its producer epoch is fenced.
        """
        batch = Sequenced(NO_SEQUENCE, NO_SEQUENCE, index, index, 0, 0)
        self._pending.setdefault(producer_id, deque()).append(_Pending(epoch + 1, batch, handle))
        self._order.append((index, producer_id))

    def marked(self, producer_id: int, epoch: int) -> Known[Handle] | None:
        """The position of the transaction's marker, or of a newer producer epoch that fences it; None without
        either.
        """
        for pending in self._pending.get(producer_id, ()):
            if pending.epoch > epoch:
                return _known([pending])
        tail = self._table.tail(producer_id)
        if tail is None or tail[0] <= epoch:
            return None
        nowhere = Sequenced(NO_SEQUENCE, NO_SEQUENCE, -1, -1, 0, 0)
        return _known([_Pending(tail[0], nowhere, None)])

    def applied(self, applied_index: Index) -> None:
        """Forget the batches up to ``applied_index``, because the table has them now."""
        while self._order and self._order[0][0] <= applied_index:
            _, producer_id = self._order.popleft()
            pending = self._pending[producer_id]
            pending.popleft()
            if not pending:
                del self._pending[producer_id]

    def clear(self) -> None:
        """Forget all batches in flight: the leader epoch is over, and the log decides whether they exist."""
        self._pending.clear()
        self._order.clear()

    def _check_many(self, headers: Sequence[BatchHeader]) -> Known[Handle] | Begun | None:
        found: list[_Pending[Handle] | _Pending[None]] = []
        new = 0
        tails: dict[int, tuple[int, int] | None] = {}
        counts: dict[int, int] = {}
        for header in headers:
            producer_id = header.producer_id
            if not header.is_sequenced:
                _expect(header, self._tail(producer_id))
                new += 1
                continue
            counts[producer_id] = counts.get(producer_id, 0) + 1
            if counts[producer_id] > PRODUCER_BATCHES_MAX:
                raise InvalidRequest(
                    f"more than {PRODUCER_BATCHES_MAX} batches of producer {producer_id} in a request, so a "
                    f"retry could not be recognised; send at most {PRODUCER_BATCHES_MAX}",
                    field="batches",
                )
            known = self._find(header)
            if known is not None:
                if new:
                    raise _not_as_it_was()
                found.append(known)
                continue
            _expect(header, tails.get(producer_id) or self._tail(producer_id))
            tails[producer_id] = (header.producer_epoch, header.last_sequence)
            new += 1
        if not found:
            return None
        if not new:
            return _known(found)
        if not all(header.is_sequenced for header in headers):
            raise _not_as_it_was()  # a batch without a sequence is not recognised
        return Begun(len(found))

    def _find(self, header: BatchHeader) -> _Pending[Handle] | _Pending[None] | None:
        """The remembered batch with the sequences and producer epoch of ``header``, or None."""
        sequences = (header.base_sequence, header.last_sequence)
        epoch = header.producer_epoch
        tail = self._tail(header.producer_id)
        if tail is None or tail[0] != epoch:
            return None
        for pending in reversed(self._pending.get(header.producer_id, ())):
            if pending.epoch == epoch and pending.batch[:2] == sequences:
                return pending
        state = self._table.get(header.producer_id)
        if state is not None and state.epoch == epoch:
            for batch in state.window:
                if batch[:2] == sequences:
                    return _Pending(epoch, batch, None)
        return None

    def _tail(self, producer_id: int) -> tuple[int, int] | None:
        """Producer epoch and last sequence of a producer's newest batch, applied or in flight."""
        pending = self._pending.get(producer_id)
        if pending:
            return pending[-1].epoch, pending[-1].batch.last_sequence
        return self._table.tail(producer_id)


def _follows(header: BatchHeader, tail: tuple[int, int]) -> bool:
    """Whether the batch continues the sequences of ``tail`` in the producer epoch of ``tail``."""
    return header.producer_epoch == tail[0] and header.base_sequence == (tail[1] + 1) & SEQUENCE_MAX


def _expect(header: BatchHeader, tail: tuple[int, int] | None) -> None:
    """Raise an error unless the batch follows ``tail``.

    A batch without a sequence needs only a current epoch.
    """
    if tail is None or _follows(header, tail):
        return  # without a tail: never seen, or so long ago that it has expired
    epoch, last_sequence = tail
    if header.producer_epoch < epoch:
        raise ProducerFenced(
            f"producer {header.producer_id} has epoch {epoch}, so epoch {header.producer_epoch} is fenced",
            current_epoch=epoch,
        )
    if not header.is_sequenced:
        return
    expected = 0 if header.producer_epoch > epoch else (last_sequence + 1) & SEQUENCE_MAX
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}; the next one is {expected}",
            expected_sequence=expected,
        )


def _not_as_it_was() -> InvalidRequest:
    return InvalidRequest(
        "some of these batches were sent before in other requests; repeat each request unchanged",
        field="batches",
    )


def _sequenced(header: BatchHeader, base_offset: int, timestamp_ms: int, leader_epoch: int) -> Sequenced:
    return Sequenced(
        header.base_sequence,
        header.last_sequence,
        base_offset,
        base_offset + header.last_offset_delta,
        timestamp_ms,
        leader_epoch,
    )


def _known(found: Sequence[_Pending[Handle] | _Pending[None]]) -> Known[Handle]:
    """The position of ``found`` batches. The handle is the last batch's, because batches commit in order."""
    first, last = found[0].batch, found[-1]
    ends = [known.batch.last_offset + 1 for known in found[:-1]]
    return Known(
        Offset(first.base_offset),
        Offset(last.batch.last_offset),
        last.batch.timestamp_ms,
        Term(first.leader_epoch),
        last.handle,
        in_one_run=ends == [known.batch.base_offset for known in found[1:]],
    )
