"""Follows the transactions of one partition, using only its committed batches.

Decides: which batches are visible at which end, and that a marker fences its epoch (T3). No code of
``partitions`` is used: all batches are kept, and results are looked up in them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from raftlog.records.control import Marker
from verification.simulator.originals import Original
from verification.simulator.result import Broken

FENCED: Final = "T3 a marker is the last of its transaction in a partition"

Numbers = tuple[int, int]
"""Producer id and epoch, which identify one transaction."""


class Aborted(NamedTuple):
    """The range of a producer's aborted batches: from the first batch to the marker."""

    producer_id: int
    first: int
    last: int


@dataclass(slots=True)
class PartitionLog:
    """Follows one partition, batch by batch."""

    name: str
    end: int = 0
    written: dict[Numbers, list[Original]] = field(default_factory=dict)
    outcomes: dict[Numbers, bool] = field(default_factory=dict)  # by markers
    by_base: dict[int, Original] = field(default_factory=dict)
    stable: dict[int, int] = field(default_factory=dict)  # the last stable offset, by applied index
    aborted: list[Aborted] = field(default_factory=list)
    _open: dict[int, tuple[int, int]] = field(default_factory=dict)  # epoch and first offset, by producer
    _fences: dict[int, int] = field(default_factory=dict)  # the lowest epoch that may write, by producer
    _markers: list[int] = field(default_factory=list)  # their offsets
    _known_from: list[int] = field(default_factory=list)  # below, aborted ranges are forgotten

    def take(self, batch: Original) -> None:
        """Process one committed batch. If it breaks a rule, raises ``Broken`` after the batch is
        processed.
        """
        entry, header = batch.entry, batch.header
        self.end = entry.last + 1
        self.by_base[entry.base] = batch
        try:
            if batch.marker is not None:
                self._end(batch.marker, entry.base)
            elif header.is_transactional:
                self._write(batch)
        finally:
            oldest = min((first for _, first in self._open.values()), default=self.end)
            self.stable[entry.last] = oldest

    @property
    def last_stable_offset(self) -> int:
        """Return the last stable offset, given all batches that are known to be committed."""
        return self.stable[self.end - 1] if self.end else 0

    @property
    def known_from(self) -> int:
        """Return the offset below which aborted ranges are forgotten; below it, reads of committed records
        are refused.
        """
        return self._known_from[-1] if self._known_from else 0

    def known_from_at(self, applied: int) -> int:
        """Return the value of ``known_from`` that a replica has at an applied index. The value
        never falls.
        """
        place = bisect_right(self._markers, applied)
        return self._known_from[place - 1] if place else 0

    def aborted_at(self, applied: int) -> list[Aborted]:
        """Return the aborted ranges that a replica must know at an applied index."""
        known_from = self.known_from_at(applied)
        return [one for one in self.aborted if known_from <= one.last <= applied]

    def outcome_at(self, base: int) -> bool | None:
        """Return whether readers of committed records get the batch at an offset; None if its transaction is
        open.
        """
        header = self.by_base[base].header
        if header.is_control or not header.is_transactional:
            return True
        return self.outcomes.get((header.producer_id, header.producer_epoch))

    def _write(self, batch: Original) -> None:
        header = batch.header
        numbers = header.producer_id, header.producer_epoch
        self.written.setdefault(numbers, []).append(batch)
        epoch, _ = self._open.setdefault(header.producer_id, (header.producer_epoch, header.base_offset))
        if header.producer_epoch < self._fences.get(header.producer_id, 0):
            raise Broken(FENCED, f"{self.name}: {header} is behind the marker of its transaction")
        if epoch != header.producer_epoch:
            raise Broken(FENCED, f"{self.name}: {header} where the transaction of epoch {epoch} is open")

    def _end(self, marker: Marker, offset: int) -> None:
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        known_from = max(self.known_from, marker.log_start)
        self._markers.append(offset)
        self._known_from.append(known_from)
        fence, self._fences[producer_id] = self._fences.get(producer_id, 0), epoch + 1
        _, first = self._open.pop(producer_id, (epoch, -1))
        self.outcomes.setdefault((producer_id, epoch), marker.is_commit)
        if first >= 0 and not marker.is_commit:
            self.aborted.append(Aborted(producer_id, first, offset))
        if epoch < fence:
            raise Broken(FENCED, f"{self.name}: {marker} at {offset}, and epoch {fence} has begun before")
