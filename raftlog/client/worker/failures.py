"""Stores records whose call failed: for a retry, or as dead letters; or ends the worker.

Decides: which of these three happens, and how the retry and dead-letter topics are created. These topics must
take every record of their source topic, even if the size limit of the source is raised later. So the worker
raises their limits when it starts, and when one of these topics refuses a record. A record to retry is a
delayed message for the retry topic, so the worker does not hold it. Leaves to others: the format of the
records (``raftlog.records.failures``), and when they are due (the brokers).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final, Protocol

from raftlog.client.admin import AsyncTopics
from raftlog.client.logs import client_logger
from raftlog.client.retries import pause_s
from raftlog.client.worker.options import Backoff, WorkerOptions
from raftlog.errors import (
    InvalidRecord,
    InvalidRequest,
    NotSent,
    PartitionDecommissioned,
    RaftlogError,
    RecordTooLarge,
    TopicNotFound,
    Unknown,
)
from raftlog.records.builder import Record
from raftlog.records.failures import (
    LIMIT,
    MESSAGE_BYTES_MAX,
    FailedRecord,
    dead_letter_topic,
    limit_for,
    retry_topic,
)
from raftlog.wire import bodies

CREATIONS_MAX: Final = 3
_log = client_logger()


class Append(Protocol):
    """A coroutine function that stores a record."""

    async def __call__(self, topic: str, partition: int, record: Record, delay_ms: int) -> None:
        """Return once the record is committed.

        With a delay, the record is stored in its topic after the delay. Raises ``RaftlogError``.
        """


class Failures:
    """The failed records of one worker. ``partition_counts`` are known once ``make_topics`` has returned."""

    def __init__(self, options: WorkerOptions, append: Append, rng: random.Random) -> None:
        self._options = options
        self._append = append
        self._rng = rng
        self.partition_counts: dict[str, int] = {}  # of the topics in which failed records are stored
        self._topics: AsyncTopics | None = None

    async def make_topics(self, topics: AsyncTopics) -> None:
        """Create missing retry and dead-letter topics, and raise the size limits of existing topics.

        Raises ``TopicNotFound`` for a missing source topic, and ``InvalidRequest`` for pauses that are longer
        than a retry topic keeps records.
        """
        self._topics, group = topics, self._options.consumer.group
        for topic in self._options.topics if self._options.puts_aside else ():
            source = await topics.describe(topic)
            common: dict[str, bodies.SettingValue] = {
                "message.timestamp.type": "CreateTime",
                LIMIT: _limit_for(source),
            }
            retention = {name: source.config[name] for name in ("retention.ms", "retention.bytes")}
            made = {retry_topic(topic, group): common | retention}
            if self._options.dead_letter:
                made[dead_letter_topic(topic, group)] = common | {"cleanup.policy": "compact"}
            for name, config in made.items():
                found = await _found_or_made(topics, name, source, config)
                await _follow(topics, found, source)
                self.partition_counts[name] = found.partitions - len(found.decommissioned)
                if name == retry_topic(topic, group) and self._options.retry is not None:
                    _check_pauses(self._options.retry, found)

    async def put_aside(self, failed: FailedRecord, error: Exception) -> None:
        """Store a failed record in the retry or the dead-letter topic.

        Raises ``error`` if the worker uses neither. A record that the retry topic refuses becomes a dead
        letter.
        """
        retry, group = self._options.retry, self._options.consumer.group
        topic = failed.origin.topic
        if retry is not None and failed.attempts < retry.attempts and not isinstance(error, InvalidRecord):
            pause_ms = retry.pause_ms(failed.attempts, self._rng)
            _log.info("%s failed, attempt %d: %s", failed.origin, failed.attempts, failed.reason)
            try:
                await self._store(retry_topic(topic, group), failed, failed.as_retry(), pause_ms)
                return
            except InvalidRequest as refusal:
                error = refusal
        if self._options.dead_letter:
            _log.warning(
                "%s becomes a dead letter after attempt %d: %s", failed.origin, failed.attempts, failed.reason
            )
            await self._give_up(dead_letter_topic(topic, group), failed)
        else:
            raise error

    async def _give_up(self, topic: str, failed: FailedRecord) -> None:
        """Store a dead letter. If the topic refuses it, store it without its contents."""
        try:
            await self._store(topic, failed, failed.as_dead_letter(), 0)
        except InvalidRequest as error:
            _log.warning("%s becomes a dead letter without contents: %s", failed.origin, error)
            await self._store(topic, failed, failed.without_contents().as_dead_letter(), 0)

    async def _store(self, topic: str, failed: FailedRecord, record: Record, delay_ms: int) -> None:
        """Retry until a record is stored, also while brokers are down or full.

        A retry may store the record twice. A delayed record is sent as JSON, whose limits are narrower than
        those of a batch: a refused record is stored without a delay. Raises ``InvalidRequest`` if it is
        refused without a delay, too.
        """
        attempts = 0
        while True:
            try:
                partition = failed.origin.partition % self.partition_counts[topic]
                return await self._append_wider(topic, partition, record, delay_ms, failed.origin.topic)
            except PartitionDecommissioned as error:  # the failed records of a source stay together
                self.partition_counts[topic] = max(1, int(str(error.details.get("partitions", 1))))
            except InvalidRequest as error:
                if not delay_ms:
                    raise
                _log.warning("%s cannot be delayed, so it is retried at once: %s", failed.origin, error)
                delay_ms = 0
            except RaftlogError as error:
                if not error.retryable and not isinstance(error, NotSent | Unknown):
                    raise
                attempts += 1
                _log.warning("%s could not be stored in %s, retrying: %s", failed.origin, topic, error)
                await asyncio.sleep(pause_s(error, attempts, self._rng))

    async def _append_wider(
        self, topic: str, partition: int, record: Record, delay_ms: int, source_name: str
    ) -> None:
        """Append a record.

        Raises ``NotSent``, so that the caller tries again, if the size limit of the topic was too low and is
        now raised.
        """
        try:
            await self._append(topic, partition, record, delay_ms)
        except RecordTooLarge as error:
            if self._topics is None:
                raise
            source = await self._topics.describe(source_name)
            was_lower = await _follow(self._topics, await self._topics.describe(topic), source)
            applied = int(str(error.details.get("limit_bytes", MESSAGE_BYTES_MAX)))
            if was_lower or (not delay_ms and applied < _limit_for(source)):
                raise NotSent(f"the limit of {topic} was raised to {_limit_for(source)} bytes") from error
            raise


def _limit_for(source: bodies.TopicDescription) -> int:
    """The size limit of a topic for all records of its source, with the headers added to failed records."""
    return limit_for(int(source.config[LIMIT]))


async def _follow(
    topics: AsyncTopics, topic: bodies.TopicDescription, source: bodies.TopicDescription
) -> bool:
    """Raise the size limit of a retry or dead-letter topic as its source requires. True if it was too low."""
    wanted = _limit_for(source)
    is_lower = int(topic.config[LIMIT]) < wanted
    if is_lower:
        await topics.alter(topic.name, config={LIMIT: wanted})
    return is_lower


async def _found_or_made(
    topics: AsyncTopics, name: str, source: bodies.TopicDescription, config: Mapping[str, bodies.SettingValue]
) -> bodies.TopicDescription:
    """The description of a topic. Creates the topic if it is missing."""
    for left in reversed(range(CREATIONS_MAX)):
        try:
            return await topics.describe(name)
        except TopicNotFound:
            pass
        try:
            return await topics.create(
                name,
                partitions=source.partitions,
                replication_factor=source.replication_factor,
                config=config,
                exist_ok=True,  # other workers of the group begin at the same time
            )
        except Unknown:
            if not left:
                raise
    raise AssertionError("the last attempt raises")


def _check_pauses(retry: Backoff, topic: bodies.TopicDescription) -> None:
    """Raise ``InvalidRequest`` if a pause is longer than the retry topic keeps records."""
    kept_ms, policy = int(topic.config["retention.ms"]), str(topic.config["cleanup.policy"])
    if "delete" in policy and 0 <= kept_ms < retry.longest_ms:
        raise InvalidRequest(
            f"retry has pauses of up to {retry.longest_ms} ms, and {topic.name} keeps records for {kept_ms} "
            "ms: choose a shorter max, or raise retention.ms of that topic",
            field="retry",
        )
