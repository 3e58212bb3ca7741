"""Which batches of a log belong to aborted transactions.

Decides: whether a batch belongs to an aborted transaction. Leaves to others: how the ranges come about
(``partitions.replica.transaction_table``), what readers see, and what compaction removes.

A producer has one transaction after the other in a partition. So its ranges do not overlap, and their order
by first offset is that by last offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raftlog.records.batch import BatchHeader


class AbortedRange(NamedTuple):
    """Batches of this producer from the first offset to the last one, its marker, are never visible."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedRanges:
    """Ranges in the order of their last offsets, found by the batches in them."""

    def __init__(self, ranges: Iterable[AbortedRange] = ()) -> None:
        self._ranges: list[AbortedRange] = []
        self._of_producer: dict[int, list[AbortedRange]] = {}
        for each in ranges:
            self.add(each)

    def __len__(self) -> int:
        return len(self._ranges)

    def __iter__(self) -> Iterator[AbortedRange]:
        return iter(self._ranges)

    def copy(self) -> AbortedRanges:
        """The ranges for work on another thread: none of them is forgotten there. It makes no copy of each.

        Ranges that are added to the original later may be found, too: no record below them belongs to them.
        """
        copied = AbortedRanges()
        copied._ranges, copied._of_producer = self._ranges[:], self._of_producer.copy()
        return copied

    def add(self, newest: AbortedRange) -> None:
        """Add a range whose last offset is above the last offsets of all other ranges."""
        self._ranges.append(newest)
        self._of_producer.setdefault(newest.producer_id, []).append(newest)

    def forget_below(self, offset: int) -> None:
        """Forget the ranges that end below an offset."""
        count = bisect_left(self._ranges, offset, key=_last_offset)
        for producer_id, number in Counter(each.producer_id for each in self._ranges[:count]).items():
            left = self._of_producer[producer_id][number:]  # a list of its own: copies have the other
            if left:
                self._of_producer[producer_id] = left
            else:
                del self._of_producer[producer_id]
        del self._ranges[:count]

    def of(self, header: BatchHeader) -> AbortedRange | None:
        """The range that a batch of records belongs to; None for all other batches."""
        if not header.is_transactional or header.is_control:
            return None  # nearly always
        ranges = self._of_producer.get(header.producer_id, [])
        at = bisect_left(ranges, header.base_offset, key=_last_offset)
        if at == len(ranges) or ranges[at].first_offset > header.base_offset:
            return None
        return ranges[at]


def _last_offset(each: AbortedRange) -> int:
    return each.last_offset
