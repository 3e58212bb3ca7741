"""Chooses the partition of a record.

Decides: an explicit partition is used; a key is hashed with murmur2, as in every Kafka client;
a record without a key goes to a random partition per batch (so that batches are large)
or to each partition in turn; a user's function overrides all but an explicit partition.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from raftlog.client.buffer import Buffer, PartitionQueue
from raftlog.client.options import Partitioner
from raftlog.client.user_code import ProcessEnd, called, shown
from raftlog.errors import PartitionDecommissioned, PartitionNotFound
from raftlog.records.keys import partition_for_key, partitions_for_keys

_KEYS_REMEMBERED_MAX = 10_000  # hashing a key takes a microsecond or two, a lookup a twentieth of it


class Router:
    """The queues of the partitions of one topic, and the choice of a queue for each record."""

    def __init__(
        self,
        topic: str,
        *,
        buffer: Buffer,
        rng: random.Random,
        partitioner: Partitioner | Literal["sticky", "round_robin"],
    ) -> None:
        self.topic = topic
        self.queues: list[PartitionQueue] = []
        self.known: list[PartitionQueue] = []  # ``queues``, and those of decommissioned partitions
        self._buffer = buffer
        self._batch_bytes = buffer.batch_bytes
        self._rng = rng
        self._partitioner = partitioner
        self._custom = None if isinstance(partitioner, str) else partitioner
        self._sticks = partitioner != "round_robin"
        self._by_key: dict[bytes, PartitionQueue] = {}
        self._turn = rng.randrange(1 << 16)
        self._sticky: PartitionQueue | None = None

    def set_queues(self, queues: list[PartitionQueue]) -> None:
        """From now on choose among the partitions of these queues."""
        self.queues = queues
        self.known = [*queues, *self.known[len(queues) :]]
        self._by_key = {}
        self._sticky = None

    def narrowed(self, count: int) -> Router:
        """Create another router, for the first ``count`` partitions."""
        made = Router(
            self.topic,
            buffer=self._buffer,
            rng=self._rng,
            partitioner=self._partitioner,
        )
        made.set_queues(self.queues[:count])
        return made

    def route(
        self, key: bytes | None, value: bytes | None, partition: int | None, size_bytes: int
    ) -> PartitionQueue:
        """The queue of a record. Raises ``PartitionNotFound``."""
        if partition is not None:
            return self._named(partition, "partition")
        if self._custom is not None:
            return self._chosen(self._custom, key, value)
        if key is not None:
            queue = self._by_key.get(key)
            return self._hashed(key) if queue is None else queue
        if not self._sticks:
            self._turn += 1
            return self.queues[self._turn % len(self.queues)]
        queue = self._sticky
        if queue is not None and (batch := queue.open) is not None:
            if batch.size_bytes + size_bytes <= self._batch_bytes:
                return queue
            self._buffer.close_open(queue, batch)
        queue = self._sticky = self._rng.choice(self.queues)
        return queue

    def _chosen(self, choose: Partitioner, key: bytes | None, value: bytes | None) -> PartitionQueue:
        """The queue that the user's function chooses, on the caller's thread.

        ``SystemExit`` is raised unchanged.
        """
        try:
            chosen = called("the partitioner", choose, self.topic, key, value, len(self.queues))
        except ProcessEnd as end:
            raise end.reason from None
        return self._named(chosen, "the partitioner's result")

    @property
    def hashes(self) -> bool:
        """Whether keys are hashed, and each batch of records without a key goes to a random partition."""
        return self._custom is None and self._sticks

    def route_keys(self, keys: Sequence[bytes]) -> list[PartitionQueue]:
        """The queues of many records with a key."""
        return [self.queues[number] for number in partitions_for_keys(keys, len(self.queues))]

    def _hashed(self, key: bytes) -> PartitionQueue:
        queues, by_key = self.queues, self._by_key
        queue = queues[partition_for_key(key, len(queues))]
        if len(by_key) >= _KEYS_REMEMBERED_MAX:
            by_key = self._by_key = {}
        by_key[key] = queue
        return queue

    def _named(self, partition: int, what: str) -> PartitionQueue:
        queues = self.queues
        if type(partition) is int and len(queues) <= partition < len(self.known):
            raise no_more_records(self.topic, partition, len(queues))
        if type(partition) is not int or not 0 <= partition < len(queues):
            raise PartitionNotFound(
                f"{what} is {shown(partition)}; {self.topic} has the partitions 0 to {len(queues) - 1}",
                topic=self.topic,
                partition=shown(partition)[:32],
            )
        return queues[partition]


def no_more_records(topic: str, partition: int, count: int) -> PartitionDecommissioned:
    """The error for a record that was sent to a decommissioned partition by its number."""
    return PartitionDecommissioned(
        f"{topic}/{partition} is decommissioned and takes no more records; send to one of 0 to {count - 1}, "
        "or name no partition",
        topic=topic,
        partition=partition,
        partitions=count,
    )
