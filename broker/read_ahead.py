"""Keeps records that were read together with other records, until a move to their target needs them.

A batch of ``__delayed`` has messages for many targets, and each move takes some of them. Without this cache,
each move would read and decode the whole batch.

Decides: which records are kept, within a limit; the oldest batches are removed first. Leaves to others:
reading and decoding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from raftlog.records.reader import RECORD_MEMORY_BYTES, StoredRecord

READ_AHEAD_BYTES: Final = 8 << 20  # of one broker
SHARE: Final = 4  # a batch that needs more than this fraction (1/SHARE) of the limit is not kept


class ReadAhead:
    """Cache of records that all coordinators of a broker share. A record is removed when it is taken."""

    def __init__(self, bytes_max: int = READ_AHEAD_BYTES) -> None:
        self._bytes_max = bytes_max
        self._records: dict[int, dict[int, StoredRecord]] = {}  # by partition and offset
        self._epochs = 0  # number of epochs that have begun
        self._epoch_of: dict[int, int] = {}  # epoch of each partition that this broker leads
        self._batches: deque[tuple[int, list[int], int]] = deque()  # partition, offsets, bytes
        self._bytes = 0

    def takes(self, record_count: int, size_bytes: int) -> bool:
        """Return whether a batch of this size is small enough to be kept."""
        return SHARE * (size_bytes + RECORD_MEMORY_BYTES * record_count) <= self._bytes_max

    def epoch_of(self, partition: int) -> int | None:
        """Return the current epoch of a partition, which a reader passes to ``keep``; None if this broker
        does not lead the partition.
        """
        return self._epoch_of.get(partition)

    def keep(self, partition: int, epoch: int | None, records: Iterable[StoredRecord]) -> None:
        """Keep records of one batch, unless a new epoch of the partition has begun since ``epoch``.

        If the cache exceeds its limit, its oldest batches are removed.
        """
        if epoch is None or self._epoch_of.get(partition) != epoch:
            return
        added = {record.offset: record for record in records}
        if not added:
            return
        size_bytes = sum(record.size_bytes + RECORD_MEMORY_BYTES for record in added.values())
        self._records[partition].update(added)
        self._batches.append((partition, [*added], size_bytes))
        self._bytes += size_bytes
        while self._bytes > self._bytes_max:
            oldest, offsets, its_bytes = self._batches.popleft()
            self._bytes -= its_bytes
            of_oldest = self._records.get(oldest, {})
            for offset in offsets:
                of_oldest.pop(offset, None)

    def take(self, partition: int, offset: int) -> StoredRecord | None:
        """Remove a record from the cache and return it; None if the cache does not have it."""
        return self._records.get(partition, {}).pop(offset, None)

    def begin(self, partition: int, *, is_led: bool) -> None:
        """Forget the records of a partition and begin a new epoch: its leader has changed, and the new
        leader's log may differ.

        Until the next call, records are kept only if this broker leads the partition (``is_led``).
        """
        self._records.pop(partition, None)
        self._epoch_of.pop(partition, None)
        if is_led:
            self._epochs += 1
            self._epoch_of[partition] = self._epochs
            self._records[partition] = {}
