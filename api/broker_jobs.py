"""Gives queues the parts of a broker: the records of topics that groups work off, and dead-letter topics.

Decides: when a job counts as gone, and how a dead-letter topic is made. Leaves to others: jobs (``groups``),
the records of dead letters (``raftlog.records.failures``).
"""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import Final

from api.http.routes import CONFIRM_MS
from api.http.services import ControllerPort, GatewayPort
from groups.queue_effects import Bury, Found, Look, Looked
from partitions.metadata.image import TopicInfo
from partitions.metadata.topic_config import complete
from partitions.values import QUORUM, FetchRequest, FetchResult
from raftlog.clock import Clock
from raftlog.errors import (
    CorruptBatch,
    NoLeader,
    OffsetOutOfRange,
    TopicExists,
    UndecodableBatch,
    UnknownPartition,
    UnknownTopic,
)
from raftlog.node.computing import computed
from raftlog.records.batch import NO_TIMESTAMP, Codec, split_batches
from raftlog.records.builder import build_batch
from raftlog.records.failures import FailedRecord, Origin, dead_letter_topic
from raftlog.records.reader import StoredRecord, iter_opened, open_batch, opens_fast
from raftlog.types import Offset, TopicPartition

LOOK_COUNT: Final = 200  # jobs that are remembered of one partition
LOOK_BYTES: Final = 64 << 10  # of batches in one look, and one batch at least
SHORT_RECORDS: Final = 1_000  # are read without leaving the event loop
KEY_BYTES: Final = 8  # of a digest
BURIALS_MAX: Final = 4  # at a time
BURY_MS: Final = 10_000
HEADERS_BYTES: Final = (
    64 << 10
)  # room for the headers of a dead letter, beside the largest record of its topic
MESSAGE_BYTES_MAX: Final = 16 << 20  # the largest that a topic may allow


class BrokerJobs:
    """See ``groups.ports.Jobs``."""

    def __init__(self, controller: ControllerPort, gateway: GatewayPort, clock: Clock) -> None:
        self._controller = controller
        self._gateway = gateway
        self._clock = clock
        self._burials = asyncio.Semaphore(BURIALS_MAX)

    async def look(self, look: Look) -> Looked:
        """See the port. Raises ``UnknownTopic`` for a topic that was made again, and ``UndecodableBatch``."""
        if await self._topic(look.topic, look.topic_id) is None:
            raise UnknownTopic(f"the topic {look.topic} was deleted", topic=look.topic)
        request = FetchRequest(position=Offset(look.offset), bytes_max=LOOK_BYTES, wait_ms=look.wait_ms)
        try:
            result = await self._gateway.fetch(TopicPartition(look.topic, look.partition), request)
        except OffsetOutOfRange as error:
            return Looked(look.offset, _nearest(look.offset, error))
        except (UnknownTopic, UnknownPartition) as error:
            if (topic := await self._topic(look.topic, look.topic_id)) is None:
                raise
            if look.partition >= len(topic.partitions) and topic.removed_partition(look.partition):
                await asyncio.sleep(look.wait_ms / 1000)  # no job will ever come
                return Looked(look.offset, look.offset)
            raise NoLeader(
                f"{look.topic} is being created or deleted: {error}", retry_after_ms=200
            ) from error
        is_short = opens_fast(split_batches(result.data), records_max=SHORT_RECORDS)
        return await computed(partial(_jobs_of, look, result), is_short=is_short)

    async def bury(self, bury: Bury) -> None:
        """See the port."""
        async with self._burials:
            source = await self._topic(bury.topic, bury.topic_id)
            stored = None if source is None else await self._record(bury)
            if source is None or stored is None:
                return
            letters = await self._letters(source, bury.group)
            failed = FailedRecord(
                origin=Origin(bury.topic, bury.partition, bury.offset),
                key=stored.key,
                value=stored.value,
                headers=stored.headers,
                timestamp_ms=max(stored.timestamp_ms, NO_TIMESTAMP),
                attempts=bury.deliveries,
                reason=bury.reason,
                failed_ms=self._clock.wall_ms(),
            )
            data = build_batch(
                [failed.as_dead_letter()],
                codec=Codec.NONE,
                timestamp_ms=self._clock.wall_ms(),
                lists_tags=True,
            )
            target = TopicPartition(letters.name, bury.partition % letters.writable_partitions)
            await self._gateway.append(target, data, acks=QUORUM, timeout_ms=BURY_MS)

    async def _topic(self, name: str, topic_id: str) -> TopicInfo | None:
        """A broker with old metadata asks before it takes a topic for gone."""
        found = self._controller.image.topics.get(name)
        if found is None or found.topic_id != topic_id:
            await self._controller.current_image(CONFIRM_MS)
            found = self._controller.image.topics.get(name)
        return found if found is not None and found.topic_id == topic_id else None

    async def _record(self, bury: Bury) -> StoredRecord | None:
        """The record of a job; None if retention or compaction has deleted it, or if it cannot be read."""
        request = FetchRequest(position=Offset(bury.offset), bytes_max=1)
        try:
            result = await self._gateway.fetch(TopicPartition(bury.topic, bury.partition), request)
        except (OffsetOutOfRange, UnknownTopic, UnknownPartition):
            return None
        is_short = opens_fast(split_batches(result.data), records_max=SHORT_RECORDS)
        return await computed(partial(_record_at, result, bury.offset), is_short=is_short)

    async def _letters(self, source: TopicInfo, group: str) -> TopicInfo:
        """The dead-letter topic, which is made if there is none."""
        name = dead_letter_topic(source.name, group)
        found = self._controller.image.topics.get(name)
        if found is not None:
            return found
        largest = int(complete(source.config, source.replication_factor)["max.message.bytes"])
        try:
            return await self._controller.create_topic(
                name,
                partitions=len(source.partitions),
                replication_factor=source.replication_factor,
                config={
                    "message.timestamp.type": "CreateTime",
                    "max.message.bytes": min(largest + HEADERS_BYTES, MESSAGE_BYTES_MAX),
                    "cleanup.policy": "compact",
                },
                timeout_ms=BURY_MS,
            )
        except TopicExists:
            image = await self._controller.current_image(CONFIRM_MS)
            if name not in image.topics:
                raise NoLeader(f"the topic {name} is not known here yet", retry_after_ms=200) from None
            return image.topics[name]


def key_digest(key: bytes | None) -> bytes:
    """What is remembered of a key; nothing of a record without one."""
    return b"" if key is None else hashlib.blake2b(key, digest_size=KEY_BYTES).digest()


def _jobs_of(look: Look, result: FetchResult) -> Looked:
    """The records that a reader of committed records gets, as many as are remembered."""
    found: list[Found] = []
    for batch in split_batches(result.data):
        if batch.header.is_control or batch.last_offset < look.offset:
            continue
        try:
            opened = open_batch(batch)
            for stored in iter_opened(batch.header, opened, Offset(look.offset)):
                if len(found) == LOOK_COUNT:
                    return Looked(look.offset, stored.offset, tuple(found))
                found.append(Found(stored.offset, key_digest(stored.key) if look.with_keys else b""))
        except CorruptBatch as error:
            if found:
                return Looked(look.offset, found[-1].offset + 1, tuple(found))
            raise UndecodableBatch(
                f"the batch of {look.topic}/{look.partition} with offset {batch.base_offset} cannot be read "
                f"as records ({error}); delete the queue, reset the group to {batch.last_offset + 1}, and "
                "receive",
                topic=look.topic,
                partition=look.partition,
                offset=batch.base_offset,
                next_offset=batch.last_offset + 1,
            ) from error
    return Looked(look.offset, result.next_offset, tuple(found))


def _record_at(result: FetchResult, offset: int) -> StoredRecord | None:
    for batch in split_batches(result.data):
        if batch.header.is_control or not batch.base_offset <= offset <= batch.last_offset:
            continue
        try:
            for stored in iter_opened(batch.header, open_batch(batch), Offset(offset)):
                return stored if stored.offset == offset else None
        except CorruptBatch:
            return None
    return None


def _nearest(offset: int, error: OffsetOutOfRange) -> int:
    """Retention deleted the records at an offset, or a recovery those before it."""
    start, end = int(str(error.details.get("start", 0))), int(str(error.details.get("end", offset)))
    return min(max(offset, start), end)
