"""Moves a producer's records from decommissioned partitions to the other partitions, in order.

Decides: when the partitions change, and the new partition of each refused record. Leaves to others: the
meaning of a refusal (``pipeline``), the choice of a partition (``partitioners``).

After the first refusal, the producer's queues of the decommissioned partitions take no more records, and no
further batches of these queues are sent. Once every batch in flight has its outcome, the remaining records
get new partitions, and only then ``send`` uses the new partitions. So the records of a key stay in order.
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
    """The change of a producer to the first ``count`` partitions of one topic."""

    def __init__(self, router: Router, buffer: Buffer, fail: Callable[[RaftlogError], None]) -> None:
        """``fail`` is called with the error of each record that cannot go to another partition."""
        self.count = len(router.queues)
        self._router = router
        self._buffer = buffer
        self._fail = fail
        self._leaving: dict[PartitionQueue, list[Batch] | None] = {}  # the batches that each has handed over

    def shrink(self, count: int) -> list[PartitionQueue]:
        """Use only the first ``count`` partitions.

        Returns the queues that must hand their batches over now.
        """
        self.count = max(1, min(self.count, count))
        more = [queue for queue in self._router.queues[self.count :] if queue not in self._leaving]
        for queue in more:
            self._buffer.set_leaving(queue, is_leaving=True)
            self._leaving[queue] = None
        return more

    def left(self, queue: PartitionQueue, batches: list[Batch]) -> list[PartitionQueue] | None:
        """Take the batches of a queue that leaves.

        After the last such queue, returns the queues that got records.
        """
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
        """The batches that leaving queues have handed over, in order."""
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
        except BaseException as error:  # of the partitioner; the other records are still placed
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
