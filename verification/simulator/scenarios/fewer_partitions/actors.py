"""Clients of a topic whose partitions are decommissioned, recommissioned, removed and added again.

The topic keeps its records for ever, so a partition is removed only after its records were deleted on
request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from partitions.metadata.image import TopicInfo
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.values import QUORUM, FetchRequest, Start
from raftlog.errors import (
    InvalidRequest,
    OutOfOrderSequence,
    PartitionDecommissioned,
    PartitionNotFound,
    ProducerFenced,
    RaftlogError,
    TopicNotFound,
)
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.machine import SECRET
from verification.simulator.simulated_cluster import SimulatedCluster

TOPIC: Final = "fewer"
PARTITIONS_MAX: Final = 5
ACTIONS: Final = {"decommission": 4, "recommission": 2, "add": 4, "delete": 5}
"""Actions of an administrator of partitions, and their weights."""
WITHOUT_RETURN: Final = {**ACTIONS, "recommission": 0}
"""Weights of the actions late in a run: without recommissions, so that no delayed request is stored
any more.
"""

Incarnation = tuple[int, int]


@dataclass(slots=True)
class Known:
    """The state that all clients of the topic share."""

    acknowledged: dict[str, tuple[int, int]] = field(default_factory=dict)  # value: partition and offset
    refused: dict[str, set[int]] = field(default_factory=dict)  # value: partitions, for good
    asked: dict[int, int] = field(
        default_factory=dict
    )  # by partition: highest offset asked to be deleted below
    at: dict[tuple[int, int], str] = field(default_factory=dict)  # partition and offset: value
    recommissions: int = 0  # requested so far


class Producer(Client):
    """Sends each value to one partition after another until a partition has stored it; a repetition has an
    equal sequence.
    """

    def __init__(self, cluster: SimulatedCluster, name: str, known: Known) -> None:
        super().__init__(cluster, name)
        self._known = known
        self._id = -1
        self._epochs: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._values = 0

    async def run(self) -> None:
        """Produce one value after another until the run ends."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            with contextlib.suppress(RaftlogError):
                await self._allocate()
                self._values += 1
                await self._store(f"{self.name}-{self._values}")
            await self.pause()

    async def _allocate(self) -> None:
        if self._id < 0:
            allocated = await self.ask(
                self.machine(), lambda broker: broker.controller.allocate_producer_ids(1, TIMEOUT_MS)
            )
            self._id = ProducerIdCipher(SECRET).id_of(allocated.start)

    async def _store(self, value: str) -> None:
        order = list(range(PARTITIONS_MAX))
        self.rng.shuffle(order)
        for partition in order:
            if not self.cluster.is_producing or await self._send(value, partition):
                return

    async def _send(self, value: str, partition: int) -> bool:
        """Send a value to a partition; return whether the partition has stored it, or may have stored it.

        A new epoch follows a refused sequence.
        """
        target = TopicPartition(TOPIC, partition)
        data = build_batch(
            [Record(value=value.encode())],
            codec=Codec.NONE,
            timestamp_ms=1_700_000_000_000,
            producer_id=self._id,
            producer_epoch=self._epochs.setdefault(partition, 0),
            base_sequence=self._sequences.setdefault(partition, 0),
        )
        in_doubt, recommissions = False, self._known.recommissions
        while self.cluster.is_producing:
            try:
                receipt = await self.append(self.machine(), target, data, QUORUM)
            except PartitionDecommissioned:
                self._begin(partition)
                # An attempt without an answer may be on its way for long: it may arrive after a recommission.
                if not in_doubt or recommissions == self._known.recommissions:
                    self._known.refused.setdefault(value, set()).add(partition)
                return False
            except (PartitionNotFound, TopicNotFound, OutOfOrderSequence, ProducerFenced):
                self._begin(partition)
                return in_doubt
            except RaftlogError as error:
                in_doubt |= not error.is_definite
            else:
                self._sequences[partition] += 1
                self._known.acknowledged[value] = (partition, receipt.base_offset)
                return True
            await self.pause()
        return True

    def _begin(self, partition: int) -> None:
        self._epochs[partition] += 1
        self._sequences[partition] = 0


class PartitionAdministrator(Client):
    """One administrator of partitions; continues after refusals and unknown outcomes."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        known: Known,
        *,
        topic: str = TOPIC,
        partitions_max: int = PARTITIONS_MAX,
        weights: Mapping[str, int] = ACTIONS,
    ) -> None:
        super().__init__(cluster, name)
        self._name = topic
        self._partitions_max = partitions_max
        self._weights = weights
        self._known = known
        self._actions = {
            "decommission": self._decommission,
            "recommission": self._recommission,
            "add": self._add,
            "delete": self._delete,
        }

    async def run(self) -> None:
        """Carry out one action after another until the run ends."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            kind = self.rng.choices(list(self._weights), list(self._weights.values()))[0]
            with contextlib.suppress(RaftlogError):
                await self._actions[kind]()
            await self.pause()
            await self.pause()

    async def _topic(self) -> TopicInfo | None:
        image = await self.ask(self.machine(), lambda broker: broker.controller.current_image(TIMEOUT_MS))
        return image.topics.get(self._name)

    async def _change(
        self, *, partitions: tuple[int, ...] = (), count: int = 0, is_ended: bool = False
    ) -> None:
        await self.ask(
            self.machine(),
            lambda broker: broker.controller.decommission_partitions(
                self._name, partitions=partitions, count=count, is_ended=is_ended, timeout_ms=TIMEOUT_MS
            ),
            lambda broker, topic: self.cluster.responses.changed(broker, topic.version),
        )

    async def _decommission(self) -> None:
        topic = await self._topic()
        if topic is not None and topic.writable_partitions > 1:
            last = topic.writable_partitions - 1
            await self._change(**self.rng.choice(({"partitions": (last,)}, {"count": 1})))

    async def _recommission(self) -> None:
        self._known.recommissions += 1
        await self._change(is_ended=True)

    async def _add(self) -> None:
        topic = await self._topic()
        if topic is not None and len(topic.partitions) < self._partitions_max:
            await self.ask(
                self.machine(),
                lambda broker: broker.controller.add_partitions(
                    self._name, 1, expected=None, expected_version=None, timeout_ms=TIMEOUT_MS
                ),
            )

    async def _delete(self) -> None:
        """Delete all records of a decommissioned partition, or the oldest records of another partition."""
        topic = await self._topic()
        if topic is None:
            return
        last = len(topic.partitions) - 1
        is_leaving = topic.writable_partitions <= last
        partition = last if is_leaving else self.rng.randrange(len(topic.partitions))
        target = TopicPartition(self._name, partition)
        end, _ = await self.ask(
            self.machine(),
            lambda broker: broker.gateway.offset_at(target, Start.LATEST, committed_only=False),
        )
        offset = Offset(max(0, end if is_leaving else end - self.rng.choice((1, 5, 20))))
        self._known.asked[partition] = max(self._known.asked.get(partition, 0), offset)
        self.cluster.log_starts.asked(target, offset)
        with contextlib.suppress(InvalidRequest):
            await self.ask(
                self.machine(),
                lambda broker: broker.gateway.delete_before(target, offset, timeout_ms=TIMEOUT_MS),
            )


class Reader(Client):
    """Reads the topic after all faults have ended."""

    removals = 0  # partition numbers that were removed at least once

    async def read_all(self) -> dict[tuple[int, int], str]:
        """Return the partition and the offset of each value that was read."""
        found: dict[tuple[int, int], str] = {}
        while True:
            with contextlib.suppress(RaftlogError):
                image = await self.ask(
                    self.machine(), lambda broker: broker.controller.current_image(TIMEOUT_MS)
                )
                topic = image.topics[TOPIC]
                self.removals = len(topic.removed)
                for partition in topic.partitions:
                    found |= await self._read(partition.partition)
                return found
            await self.pause()

    async def _read(self, partition: int) -> dict[tuple[int, int], str]:
        target, found = TopicPartition(TOPIC, partition), dict[tuple[int, int], str]()
        request = FetchRequest(position=Start.EARLIEST)
        while True:
            result = await self.ask(self.machine(), lambda broker: broker.gateway.fetch(target, request))  # noqa: B023
            for batch in split_batches(result.data):
                for record in () if batch.header.is_control else read_records(batch):
                    found[partition, record.offset] = (record.value or b"").decode()
            if result.next_offset >= result.high_watermark:
                return found
            request = FetchRequest(position=result.next_offset)
