"""Finds the batches of a log that belong to aborted transactions.

Decides: whether a batch belongs to an aborted transaction. Leaves to others: where the ranges come from
(``partitions.replica.transaction_table``), what readers see, and what compaction removes.

A producer has at most one open transaction in a partition. So its ranges do not overlap, and their order
by first offset equals their order by last offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from raftlog.records.batch import BatchHeader


class AbortedRange(NamedTuple):
    """Offsets of one aborted transaction, whose records are never visible."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker that ends the transaction


class AbortedRanges:
    """Ranges of aborted transactions, in the order of their last offsets, with a search by batch."""

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
        """A shallow copy for another thread: ``forget_below`` on the original removes no range from the copy.

        The copy may contain ranges that are added to the original later; records below these ranges are not
        affected.
        """
        copied = AbortedRanges()
        copied._ranges, copied._of_producer = self._ranges[:], self._of_producer.copy()
        return copied

    def add(self, newest: AbortedRange) -> None:
        """Add a range whose last offset is above the last offsets of all other ranges."""
        self._ranges.append(newest)
        self._of_producer.setdefault(newest.producer_id, []).append(newest)

    def forget_below(self, offset: int) -> None:
        """Forget the ranges that end below ``offset``."""
        count = bisect_left(self._ranges, offset, key=_last_offset)
        for producer_id, number in Counter(each.producer_id for each in self._ranges[:count]).items():
            left = self._of_producer[producer_id][number:]  # a new list: copies keep the old one
            if left:
                self._of_producer[producer_id] = left
            else:
                del self._of_producer[producer_id]
        del self._ranges[:count]

    def of(self, header: BatchHeader) -> AbortedRange | None:
        """The range to which a batch of records belongs; None for a batch outside all ranges."""
        if not header.is_transactional or header.is_control:
            return None  # the usual case
        ranges = self._of_producer.get(header.producer_id, [])
        at = bisect_left(ranges, header.base_offset, key=_last_offset)
        if at == len(ranges) or ranges[at].first_offset > header.base_offset:
            return None
        return ranges[at]


def _last_offset(each: AbortedRange) -> int:
    return each.last_offset
