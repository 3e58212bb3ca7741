"""Runs a client that repeatedly creates, uses and deletes a topic: no record of an earlier topic of this name
may reappear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from broker.broker import Broker
from partitions.metadata.image import TopicInfo
from partitions.values import QUORUM, FetchRequest
from raftlog.errors import RaftlogError, TopicExists, TopicNotFound
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.simulated_cluster import SimulatedCluster

Result = TypeVar("Result")
NAME: Final = "passing"
TRIES: Final = 60
LOOKS: Final = 100  # attempts to read a record, 0.05 s apart


class GaveUp(Exception):
    """An operation took longer than the client waits; during faults this is no violation."""


class Churner(Client):
    """The only client of its topic name, so it knows the records of each topic that had the name.

    In half of the runs its deletions name the topic's version, so that a late deletion cannot delete a later
    topic.
    """

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        super().__init__(cluster, name)
        self._incarnation = 0
        self._by_version = cluster.rng(f"versions of {name}").random() < 0.5
        self._topic_id = ""  # id of the created incarnation whose deletion was not requested
        self._written_before: set[str] = (
            set()
        )  # acknowledged in earlier incarnations; uncertain records may arrive late

    async def run(self) -> None:
        """Create, use and delete the topic repeatedly, until the run ends."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            self._incarnation += 1
            try:
                await self._live()
            except GaveUp:
                await self.pause()

    async def _live(self) -> None:
        self._topic_id = ""
        await self._until(self._delete, TopicNotFound)
        self._topic_id = "".join(await self._until(self._create, TopicExists))
        written: set[str] = set()
        for number in range(self.rng.randint(0, 3)):
            value = f"{self._incarnation}-{number}"
            if await self._append(value):
                written.add(value)
        values = await self._read(written)
        old = sorted(self._written_before.intersection(values))
        lost = sorted(written.difference(values))
        self._written_before |= written
        if lost:
            self.cluster.violated("H lost-write", f"incarnation {self._incarnation} of {NAME}: {lost}")
        if old:
            self.cluster.violated(
                "I15 deleted records stay deleted", f"incarnation {self._incarnation}: {old}"
            )
        await asyncio.sleep(self.rng.random() / 2)

    async def _append(self, value: str) -> bool:
        data = build_batch([Record(value=value.encode())], codec=Codec.NONE, timestamp_ms=0)
        target = TopicPartition(NAME, 0)

        async def append(broker: Broker) -> object:
            topic = await self._look(broker)  # see ``_read``
            receipt = await broker.gateway.append(target, data, acks=QUORUM, timeout_ms=TIMEOUT_MS)
            if _is_still(topic, broker):
                self.cluster.responses.appended(target, data, QUORUM, broker, receipt)
            return receipt

        try:
            await self.ask(self.machine(), append)
        except RaftlogError:
            return False
        return True

    async def _read(self, wanted: set[str]) -> list[str]:
        """Read all records from the start, until ``wanted`` are read: right after its election a leader may
        show an old end.

        Only reads from a broker that knows the newest topic of the name. After all brokers were down, brokers
        may briefly use older metadata, in which a deleted topic still exists.
        """

        async def read(broker: Broker) -> list[str]:
            topic = await self._look(broker)
            position, looks, values = 0, 0, list[str]()
            while True:
                request = FetchRequest(position=Offset(position))
                result = await broker.gateway.fetch(TopicPartition(NAME, 0), request)
                if _is_still(topic, broker):
                    self.cluster.responses.read(TopicPartition(NAME, 0), broker, result)
                values += [
                    (record.value or b"").decode()
                    for batch in split_batches(result.data)
                    if not batch.header.is_control
                    for record in read_records(batch)
                ]
                is_at_end = result.next_offset in (position, result.high_watermark)
                if is_at_end and (wanted.issubset(values) or looks >= LOOKS):
                    return values
                if result.next_offset == position:
                    looks += 1
                    await asyncio.sleep(0.05)
                position = result.next_offset

        return await self._until(read, ())

    async def _look(self, broker: Broker) -> TopicInfo | None:
        """Return the topic in confirmed metadata: until its deletion is requested, this must be the created
        topic.
        """
        made = self._topic_id
        image = await broker.controller.current_image(TIMEOUT_MS)
        topic = image.topics.get(NAME)
        found = "" if topic is None else topic.topic_id
        if self._by_version and made and made == self._topic_id and found != made:
            detail = f"{NAME} was made as {made}; broker {broker.node_id} has {found!r}"
            self.cluster.violated("I15 nothing else is deleted", detail)
        return topic

    async def _create(self, broker: Broker) -> list[str]:
        topic = await broker.controller.create_topic(
            NAME, partitions=1, replication_factor=3, config={}, timeout_ms=TIMEOUT_MS
        )
        self.cluster.responses.changed(broker, topic.version)
        return [topic.topic_id]

    async def _delete(self, broker: Broker) -> list[str]:
        expected: int | None = None
        if self._by_version:
            topic = await self._look(broker)
            if topic is None:
                return []
            expected = topic.version
        version = await broker.controller.delete_topic(NAME, expected_version=expected, timeout_ms=TIMEOUT_MS)
        self.cluster.responses.changed(broker, version)
        return []

    async def _until(
        self,
        work: Callable[[Broker], Awaitable[list[str]]],
        done_when: type[RaftlogError] | tuple[()],
    ) -> list[str]:
        for _ in range(TRIES):
            try:
                return await self.ask(self.machine(), work)
            except done_when:
                return []
            except RaftlogError:
                await self.pause()
        raise GaveUp


def _is_still(topic: TopicInfo | None, broker: Broker) -> bool:
    """True if a broker has seen no other topic with this name since ``topic`` was read."""
    now = broker.controller.image.topics.get(NAME)
    return topic is not None and now is not None and now.topic_id == topic.topic_id
