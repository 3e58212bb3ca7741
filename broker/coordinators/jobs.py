"""Connects queues with a broker: with the topics whose records are jobs, and with the dead-letter topics.

Decides: when a job counts as deleted, and how a dead-letter topic is created. Leaves to others: jobs
(``queues``), the records of dead letters (``raftlog.records.failures``).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from broker.ports import ControllerPort, GatewayPort
from partitions.metadata.image import TopicInfo
from partitions.metadata.topic_config import complete
from partitions.routing.confirmed_topics import MISSING, ConfirmedTopics
from partitions.values import QUORUM, FetchRequest, FetchResult
from queues.effects import Bury, Found, Look, Looked
from queues.job_steps import key_digest
from queues.look_ahead import LOOK_COUNT
from raftlog.clock import Clock
from raftlog.errors import (
    CorruptBatch,
    InvalidRequest,
    NoLeader,
    OffsetOutOfRange,
    PartitionNotFound,
    RecordTooLarge,
    TopicExists,
    TopicNotFound,
)
from raftlog.node.computing import computed
from raftlog.records.batch import NO_TIMESTAMP, Batch, Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.failures import BATCH_HEADER, LIMIT, FailedRecord, Origin, dead_letter_topic, limit_for
from raftlog.records.reader import StoredRecord, iter_opened, open_batch, opens_fast
from raftlog.records.tags import tag_fields
from raftlog.types import Offset, TopicPartition

LOOK_BYTES: Final = 64 << 10  # of batches in one look; at least one batch
SHORT_RECORDS: Final = 1_000  # so many records are decoded on the event loop; more are decoded on a thread
BURIALS_MAX: Final = 4  # at a time
BURY_MS: Final = 10_000
_log = logging.getLogger("raftlog.groups")


class BrokerJobs:
    """Finds jobs and stores dead letters through the gateway; implements ``queues.ports.Jobs``."""

    def __init__(self, controller: ControllerPort, gateway: GatewayPort, clock: Clock) -> None:
        self._controller = controller
        self._topics = ConfirmedTopics(controller)
        self._gateway = gateway
        self._clock = clock
        self._burials = asyncio.Semaphore(BURIALS_MAX)

    async def look(self, look: Look) -> Looked:
        """Find the next jobs of a partition. Raises ``TopicNotFound`` if the topic was deleted and created
        again.
        """
        if await self._topics.topic(look.topic, look.topic_id) is None:
            raise TopicNotFound(f"the topic {look.topic} was deleted", topic=look.topic)
        request = FetchRequest(
            position=Offset(look.offset),
            bytes_max=LOOK_BYTES,
            wait_ms=look.wait_ms,
            **tag_fields(look.selection),
        )
        try:
            result = await self._gateway.fetch(TopicPartition(look.topic, look.partition), request)
        except OffsetOutOfRange as error:
            nearest = error.nearest(look.offset)
            _log.warning(
                "the queue of group %s skips deleted offsets %d to %d of %s/%d: it continues at %d",
                look.group,
                look.offset,
                nearest - 1,
                look.topic,
                look.partition,
                nearest,
            )
            return Looked(look.offset, nearest)
        except PartitionNotFound:
            topic = self._topics.topic_here(look.topic, look.topic_id)
            if topic is None or topic.removed_partition(look.partition) is None:
                raise
            await asyncio.sleep(look.wait_ms / 1000)  # no job will ever come
            return Looked(look.offset, look.offset)
        is_short = opens_fast(split_batches(result.data), records_max=SHORT_RECORDS)
        return await computed(partial(_jobs_of, look, result), is_short=is_short)

    async def bury(self, bury: Bury) -> None:
        """Store a job in the dead-letter topic; see ``queues.ports.Jobs.bury``."""
        async with self._burials:
            source = await self._topics.topic(bury.topic, bury.topic_id)
            stored = None if source is None else await self._record(bury)
            if source is None or stored is None:
                return
            letters = await self._letters(source, bury.group)
            target = TopicPartition(letters.name, bury.partition % letters.writable_partitions)
            failed = self._failed(bury, stored)
            try:
                await self._store(target, failed)
            except InvalidRequest as error:
                applied = int(str(error.details.get("limit_bytes", 0)))
                if isinstance(error, RecordTooLarge) and applied < _limit_of(letters):
                    raise  # the replicas do not know their new limit yet: the coordinator tries again
                # The record or its headers have the maximum size already: there is no room for the headers of
                # a dead letter.
                await self._store(target, failed.without_contents())

    def _failed(self, bury: Bury, stored: StoredRecord | Batch) -> FailedRecord:
        """Build the dead letter of a job; a batch that cannot be decoded becomes one dead letter with the
        batch's bytes.
        """
        if isinstance(stored, Batch):
            span = f"{stored.base_offset}-{stored.last_offset}".encode()
            sent = Record(bytes(stored.data), None, ((BATCH_HEADER, span),), NO_TIMESTAMP)
        else:
            sent = Record(stored.value, stored.key, stored.headers, stored.timestamp_ms)
        return FailedRecord(
            origin=Origin(bury.topic, bury.partition, bury.offset),
            key=sent.key,
            value=sent.value,
            headers=sent.headers,
            timestamp_ms=NO_TIMESTAMP if sent.timestamp_ms is None else sent.timestamp_ms,
            attempts=bury.deliveries,
            reason=bury.reason,
            failed_ms=self._clock.wall_ms(),
            redrives=bury.redrives,
        )

    async def _store(self, target: TopicPartition, failed: FailedRecord) -> None:
        data = build_batch(
            [failed.as_dead_letter()],
            codec=Codec.NONE,
            timestamp_ms=self._clock.wall_ms(),
            lists_tags=True,
        )
        await self._gateway.append(target, data, acks=QUORUM, timeout_ms=BURY_MS)

    async def _record(self, bury: Bury) -> StoredRecord | Batch | None:
        """Read the record of a job, or its batch if the batch cannot be decoded.

        Returns None if the record or the whole partition was deleted.
        """
        request = FetchRequest(position=Offset(bury.offset), bytes_max=1)
        try:
            result = await self._gateway.fetch(TopicPartition(bury.topic, bury.partition), request)
        except OffsetOutOfRange as error:
            if error.nearest(bury.offset) > bury.offset:
                return None
            raise not_there_yet(bury.topic, bury.partition, bury.offset) from error
        except MISSING:
            return None
        if result.next_offset <= bury.offset:
            raise not_there_yet(bury.topic, bury.partition, bury.offset)
        is_short = opens_fast(split_batches(result.data), records_max=SHORT_RECORDS)
        return await computed(partial(_record_at, result, bury.offset), is_short=is_short)

    async def _letters(self, source: TopicInfo, group: str) -> TopicInfo:
        """Return the dead-letter topic of a group.

        Creates the topic if it is missing, and raises its record size limit to the limit of the source topic.
        """
        name = dead_letter_topic(source.name, group)
        found = self._topics.topic_here(name)
        wanted = limit_for(_limit_of(source))
        if found is not None and _limit_of(found) >= wanted:
            return found
        if found is not None:  # the limit of the source was raised after the topic was created
            return await self._controller.alter_config(
                name, {LIMIT: wanted}, expected_version=None, timeout_ms=BURY_MS
            )
        try:
            return await self._controller.create_topic(
                name,
                partitions=len(source.partitions),
                replication_factor=source.replication_factor,
                config={
                    "message.timestamp.type": "CreateTime",
                    LIMIT: wanted,
                    "cleanup.policy": "compact",
                },
                timeout_ms=BURY_MS,
            )
        except TopicExists:
            found = await self._topics.topic(name)
            if found is None:
                raise NoLeader(f"the topic {name} was deleted meanwhile", retry_after_ms=200) from None
            return found


def _limit_of(topic: TopicInfo) -> int:
    return int(complete(topic.config, topic.replication_factor)[LIMIT])


def _jobs_of(look: Look, result: FetchResult) -> Looked:
    """Find up to ``LOOK_COUNT`` jobs: committed records that match the queue's selection.

    A batch that cannot be decoded counts as a job if its tags are not listed: its records might match.
    """
    found: list[Found] = []
    for batch in split_batches(result.data):
        if batch.header.is_control or batch.last_offset < look.offset:
            continue
        unread = max(batch.base_offset, look.offset)
        try:
            opened = open_batch(batch)
            for stored in iter_opened(batch.header, opened, Offset(look.offset)):
                if look.selection is not None and not look.selection.matches(stored.headers):
                    unread = stored.offset + 1
                    continue
                if len(found) == LOOK_COUNT:
                    return Looked(look.offset, stored.offset, tuple(found))
                found.append(Found(stored.offset, key_digest(stored.key) if look.with_keys else b""))
                unread = stored.offset + 1
        except CorruptBatch as error:
            if len(found) == LOOK_COUNT:
                return Looked(look.offset, unread, tuple(found))
            _log.error(
                "%s/%d: the batch of offsets %d to %d cannot be read from %d on. It becomes a dead letter "
                "of group %s: %s",
                look.topic,
                look.partition,
                batch.base_offset,
                batch.last_offset,
                unread,
                look.group,
                error,
            )
            found.append(Found(Offset(unread), problem=f"the batch cannot be read as records: {error}"))
    is_at_end = result.next_offset >= result.end >= 0
    return Looked(look.offset, result.next_offset, tuple(found), is_at_end)


def _record_at(result: FetchResult, offset: int) -> StoredRecord | Batch | None:
    for batch in split_batches(result.data):
        if batch.header.is_control or not batch.base_offset <= offset <= batch.last_offset:
            continue
        try:
            for stored in iter_opened(batch.header, open_batch(batch), Offset(offset)):
                return stored if stored.offset == offset else None
        except CorruptBatch:
            return batch
    return None


def not_there_yet(topic: str, partition: int, offset: int) -> NoLeader:
    """The error for a record that the partition's leader does not have yet.

    A deposed leader that does not know it yet may lack records that were already delivered as jobs.
    """
    return NoLeader(
        f"the leader of {topic}/{partition} does not have offset {offset}; retry", retry_after_ms=200
    )
