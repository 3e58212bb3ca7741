"""Reads a topic of Kafka for an import: its partitions, settings, committed records and groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
)

from raftlog.errors import Conflict, InvalidRequest
from raftlog.records.builder import Record

WAIT_MS = 500
COORDINATOR_ATTEMPTS = 20
_PASSING = (GroupCoordinatorNotAvailableError, GroupLoadInProgressError, NotCoordinatorForGroupError)


class Found(NamedTuple):
    """A record of Kafka, with its partition and offset in Kafka."""

    partition: int
    offset: int
    record: Record


class Lost(NamedTuple):
    """A range of offsets of a partition that Kafka deleted after one run of an import and before the next
    run.
    """

    partition: int
    start: int
    end: int


class Source:
    """A topic of Kafka, of which only the records of committed transactions are read."""

    def __init__(self, admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._admin = admin
        self._consumer = consumer
        self.topic = topic
        self.cluster = ""
        self.partitions: range = range(0)

    async def describe(self) -> None:
        """Read the metadata of Kafka's topic. Raises ``InvalidRequest`` if the topic does not exist."""
        self.cluster = str((await self._admin.describe_cluster())["cluster_id"])
        (shown,) = await self._admin.describe_topics([self.topic])
        if shown["error_code"]:
            raise InvalidRequest(f"the Kafka cluster has no topic {self.topic!r}; correct the name")
        self.partitions = range(len(shown["partitions"]))

    async def config(self) -> Mapping[str, str]:
        """Return the settings of the topic; empty if Kafka does not show them."""
        try:
            shown = await self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self.topic)])
        except KafkaError:
            return {}
        return {entry[0]: entry[1] for entry in shown[0].resources[0][4]}

    async def begin(self, following: Mapping[int, int]) -> list[Lost]:
        """Read from the offsets in ``following``, and other partitions from their start; return the offsets
        that Kafka has deleted.

        Raises ``Conflict`` if a partition ends before its offset, because the topic was then created again.
        """
        targets, lost = self._targets(), []
        self._consumer.assign(targets)
        firsts, ends = await self._consumer.beginning_offsets(targets), await self.ends()
        for target in targets:
            at = max(following.get(target.partition, 0), firsts[target])
            if at > max(ends[target.partition], firsts[target]):
                raise Conflict(
                    f"partition {target.partition} of {self.topic} ends in Kafka at offset "
                    f"{ends[target.partition]}, before {at}, where this import continues: the topic was "
                    "created again; import it into another topic"
                )
            if at > following.get(target.partition, at):
                lost.append(Lost(target.partition, following[target.partition], at))
            self._consumer.seek(target, at)
        return lost

    async def ends(self) -> Mapping[int, int]:
        """Return the end offset of each partition: the offset after the last record that can be read now."""
        return {
            each.partition: at for each, at in (await self._consumer.end_offsets(self._targets())).items()
        }

    async def following(self) -> dict[int, int]:
        """Return the offset of the next record to read, by partition."""
        return {each.partition: await self._consumer.position(each) for each in self._targets()}

    async def read(self, records_max: int) -> Sequence[Found]:
        """Return the next records; empty if no record arrives for a while."""
        read = await self._consumer.getmany(timeout_ms=WAIT_MS, max_records=records_max)
        return [
            Found(target.partition, each.offset, _record(each))
            for target, some in read.items()
            for each in some
        ]

    async def groups(self) -> Sequence[str]:
        """Return the names of all consumer groups in Kafka."""
        return sorted(str(group[0]) for group in await self._admin.list_consumer_groups())

    async def committed(self, group: str) -> Mapping[int, int]:
        """Return the committed offsets of a group in Kafka by partition; waits for the group's
        coordinator.
        """
        found = await self._offsets_of(group)
        return {
            target.partition: shown.offset
            for target, shown in found.items()
            if target.topic == self.topic and shown.offset >= 0
        }

    async def _offsets_of(self, group: str) -> Mapping[TopicPartition, Any]:
        for _ in range(COORDINATOR_ATTEMPTS):
            try:
                return dict(await self._admin.list_consumer_group_offsets(group))
            except _PASSING:
                await asyncio.sleep(WAIT_MS / 1_000)
        return dict(await self._admin.list_consumer_group_offsets(group))

    def _targets(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in self.partitions]


@asynccontextmanager
async def opened(bootstrap: str, topic: str) -> AsyncIterator[Source]:
    """Open a connection to Kafka for the block. Raises ``KafkaError``."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="raftlog-import")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        client_id="raftlog-import",
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_bytes=16 << 20,
        max_partition_fetch_bytes=4 << 20,
    )
    try:
        await admin.start()
        await consumer.start()
        source = Source(admin, consumer, topic)
        await source.describe()
        yield source
    finally:
        with suppress(asyncio.CancelledError, KafkaError):  # raised by its own tasks if Kafka is down
            await consumer.stop()
        await admin.close()


def _record(found: Any) -> Record:  # noqa: ANN401 (aiokafka ships no types)
    time_ms = found.timestamp if found.timestamp >= 0 else None
    return Record(found.value, found.key, tuple(found.headers), time_ms)
