"""Which partition a record goes to.

Decides: a partition that is named is taken; a key goes where murmur2 says, as in every Kafka client;
a record without a key goes to a partition chosen at random for each batch (so that batches are large)
or to each in turn; and a function of the user's overrides all but the name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

from raftlog.client.buffer import Buffer, Lane
from raftlog.client.options import Partitioner
from raftlog.errors import UnknownPartition
from raftlog.records.keys import partition_for_key

_KEYS_REMEMBERED_MAX = 10_000  # hashing a key takes a microsecond or two, looking it up a twentieth


class Router:
    """The partitions of one topic, and the choice between them."""

    def __init__(
        self,
        topic: str,
        *,
        buffer: Buffer,
        rng: random.Random,
        partitioner: Partitioner | Literal["sticky", "round_robin"],
    ) -> None:
        self.topic = topic
        self.lanes: list[Lane] = []
        self._buffer = buffer
        self._batch_bytes = buffer.batch_bytes
        self._rng = rng
        self._custom = None if isinstance(partitioner, str) else partitioner
        self._keyless: Callable[[int], Lane] = (
            self._in_turn if partitioner == "round_robin" else self._sticking
        )
        self._by_key: dict[bytes, Lane] = {}
        self._turn = rng.randrange(1 << 16)
        self._sticky: Lane | None = None

    def set_lanes(self, lanes: list[Lane]) -> None:
        """Spread over these from now on."""
        self.lanes = lanes
        self._by_key = {}
        self._sticky = None

    def route(self, key: bytes | None, value: bytes | None, partition: int | None, size_bytes: int) -> Lane:
        """The lane of a record. Raises ``UnknownPartition``."""
        if partition is not None:
            return self._named(partition, "partition")
        if self._custom is not None:
            chosen = self._custom(self.topic, key, value, len(self.lanes))
            return self._named(chosen, "the partitioner's result")
        if key is None:
            return self._keyless(size_bytes)
        lane = self._by_key.get(key)
        return self._hashed(key) if lane is None else lane

    def _hashed(self, key: bytes) -> Lane:
        lanes, by_key = self.lanes, self._by_key
        lane = lanes[partition_for_key(key, len(lanes))]
        if len(by_key) >= _KEYS_REMEMBERED_MAX:
            by_key = self._by_key = {}
        by_key[key] = lane
        return lane

    def _sticking(self, size_bytes: int) -> Lane:
        lane = self._sticky
        if lane is not None and (batch := lane.open) is not None:
            if batch.size_bytes + size_bytes <= self._batch_bytes:
                return lane
            self._buffer.close_open(lane, batch)
        lane = self._sticky = self._rng.choice(self.lanes)
        return lane

    def _in_turn(self, size_bytes: int) -> Lane:
        self._turn += 1
        return self.lanes[self._turn % len(self.lanes)]

    def _named(self, partition: int, what: str) -> Lane:
        lanes = self.lanes
        if type(partition) is not int or not 0 <= partition < len(lanes):
            raise UnknownPartition(
                f"{what} is {partition!r}; {self.topic} has the partitions 0 to {len(lanes) - 1}",
                topic=self.topic,
                partition=repr(partition)[:32],
            )
        return lanes[partition]
