"""A producer's way to fewer partitions: records of decommissioned ones go to the others, in order.

Decides: when the partitions change, and where each record goes that was turned away. Leaves to others: what a
refusal means (``pipeline``), the choice of a partition (``partitioners``).

From the first refusal on, the partitions that leave take no more records, and send nothing that was not sent
yet. Once everything in flight has its outcome, the records that are left get new partitions, and only then
``send`` uses the new ones. So the records of a key stay in order.
"""

from __future__ import annotations

from collections.abc import Callable

from raftlog.client.buffer import RECORD_OVERHEAD_BYTES, Buffer, PartitionQueue
from raftlog.client.partitioners import Router, no_more_records
from raftlog.client.receipts import Batch
from raftlog.client.user_code import described
from raftlog.client.values import headers_bytes
from raftlog.errors import InvalidRecord, RaftlogError
from raftlog.records.builder import Record
from raftlog.units import counted


class Narrowing:
    """The change of one topic to its first ``count`` partitions."""

    def __init__(self, router: Router, buffer: Buffer, fail: Callable[[RaftlogError], None]) -> None:
        """``fail`` is called with the error of each record that cannot go to another partition."""
        self.count = len(router.queues)
        self._router = router
        self._buffer = buffer
        self._fail = fail
        self._leaving: dict[PartitionQueue, list[Batch] | None] = {}  # what each has handed over

    def shrink(self, count: int) -> list[PartitionQueue]:
        """Only so many partitions stay. Returns those that are to leave by this."""
        self.count = max(1, min(self.count, count))
        more = [queue for queue in self._router.queues[self.count :] if queue not in self._leaving]
        for queue in more:
            self._buffer.set_leaving(queue, is_leaving=True)
            self._leaving[queue] = None
        return more

    def left(self, queue: PartitionQueue, batches: list[Batch]) -> list[PartitionQueue] | None:
        """A partition has left, with the records that it had. Once all have, those that got records."""
        self._leaving[queue] = batches
        if None in self._leaving.values():
            return None
        router = self._router.narrowed(self.count)
        targets: dict[PartitionQueue, None] = {}
        for batch in self.handed_over:
            self._buffer.release(batch)
            batch.move([self._place(router, batch, *each, targets) for each in enumerate(batch.records)])
        self._router.set_queues(router.queues)
        return list(targets)

    @property
    def handed_over(self) -> list[Batch]:
        """The batches of the partitions that have left, in order."""
        return [batch for batches in self._leaving.values() for batch in batches or ()]

    def _place(
        self, router: Router, batch: Batch, index: int, record: Record, targets: dict[PartitionQueue, None]
    ) -> tuple[Batch, int] | RaftlogError:
        size_bytes = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size_bytes += headers_bytes(record.headers) if record.headers else 0
        try:
            if index in batch.named:
                raise no_more_records(batch.topic, batch.partition, self.count)
            queue = router.route(record.key, record.value, None, size_bytes)
        except RaftlogError as error:
            self._fail(error)
            return error
        except BaseException as error:  # the partitioner's; the other records go on
            failure = InvalidRecord(
                f"the partitioner raised {described(error)}; "
                f"{batch.topic} has {counted(self.count, 'partition')}"
            )
            failure.__cause__ = error
            self._fail(failure)
            return failure
        placed = self._buffer.append(queue, record, size_bytes, None, is_moved=True)
        assert placed is not None  # the partition stays, and the room was there
        targets[queue] = None
        return placed
