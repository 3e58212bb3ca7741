"""Records whose call failed: tried again later, given up, or the end of the worker.

Decides: which of the three, and how the two topics are made. Leaves to others: the records themselves
(``raftlog.records.failures``).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from raftlog.client.admin import AsyncTopics
from raftlog.client.retries import pause_s
from raftlog.client.worker.options import WorkerOptions
from raftlog.errors import (
    InvalidRecord,
    NotSent,
    PartitionDecommissioned,
    RaftlogError,
    Unknown,
    UnknownTopic,
)
from raftlog.records.builder import Record
from raftlog.records.failures import FailedRecord, dead_letter_topic, retry_topic
from raftlog.wire import bodies

HEADERS_BYTES: Final = (
    64 << 10
)  # room for the headers of a failed record, beside the largest record of a topic
MESSAGE_BYTES_MAX: Final = 16 << 20  # the largest that a topic may allow
CREATIONS_MAX: Final = 3
Append = Callable[[str, int, Record], Awaitable[None]]
_log = logging.getLogger("raftlog.client")


class Failures:
    """``append(topic, partition, record)`` returns once the record is committed."""

    def __init__(self, options: WorkerOptions, append: Append, rng: random.Random) -> None:
        self._options = options
        self._append = append
        self._rng = rng
        self.partition_counts: dict[str, int] = {}  # of the topics in which failed records are stored

    async def make_topics(self, topics: AsyncTopics) -> None:
        """Make the retry and dead-letter topics that do not exist. Raises ``UnknownTopic`` for a source."""
        group = self._options.consumer.group
        for topic in self._options.topics if self._options.puts_aside else ():
            source = await topics.describe(topic)
            size = int(source.config["max.message.bytes"])
            common: dict[str, int | str] = {
                "message.timestamp.type": "CreateTime",
                "max.message.bytes": min(size + HEADERS_BYTES, MESSAGE_BYTES_MAX),
            }
            retention = {name: source.config[name] for name in ("retention.ms", "retention.bytes")}
            made = {retry_topic(topic, group): common | retention}
            if self._options.dead_letter:
                made[dead_letter_topic(topic, group)] = common | {"cleanup.policy": "compact"}
            for name, config in made.items():
                self.partition_counts[name] = await _partition_count(topics, name, source, config)

    async def put_aside(self, failed: FailedRecord, error: Exception) -> None:
        """Store a failed record in the topic where it belongs. Raises ``error`` if it belongs nowhere."""
        retry, group = self._options.retry, self._options.consumer.group
        topic = failed.origin.topic
        if retry is not None and failed.attempts < retry.attempts and not isinstance(error, InvalidRecord):
            pause_ms = retry.pause_ms(failed.attempts, self._rng)
            again = replace(failed, not_before_ms=failed.failed_ms + pause_ms)
            _log.info("%s failed, attempt %d: %s", failed.origin, failed.attempts, failed.reason)
            await self._store(retry_topic(topic, group), failed, again.as_retry())
        elif self._options.dead_letter:
            _log.warning("%s is given up, attempt %d: %s", failed.origin, failed.attempts, failed.reason)
            await self._store(dead_letter_topic(topic, group), failed, failed.as_dead_letter())
        else:
            raise error

    async def _store(self, topic: str, failed: FailedRecord, record: Record) -> None:
        """Until it is stored, also while brokers are down. A repeat may store it twice."""
        attempts = 0
        while True:
            try:
                return await self._append(
                    topic, failed.origin.partition % self.partition_counts[topic], record
                )
            except PartitionDecommissioned as error:  # the failed records of a source stay together
                self.partition_counts[topic] = max(1, int(str(error.details.get("partitions", 1))))
            except RaftlogError as error:
                if not error.retryable and not isinstance(error, NotSent | Unknown):
                    raise
                attempts += 1
                _log.warning("%s is stored in %s later: %s", failed.origin, topic, error)
                await asyncio.sleep(pause_s(error, attempts, self._rng))


async def _partition_count(
    topics: AsyncTopics, name: str, source: bodies.TopicBody, config: Mapping[str, int | str]
) -> int:
    """The partitions of a topic, which is made if there is none."""
    for left in reversed(range(CREATIONS_MAX)):
        try:
            found = await topics.describe(name)
            return found.partitions - len(found.decommissioned)
        except UnknownTopic:
            pass
        try:
            made = await topics.create(
                name,
                partitions=source.partitions,
                replication=source.replication_factor,
                config=config,
                exist_ok=True,  # other workers of the group begin at the same time
            )
            return made.partitions
        except Unknown:
            if not left:
                raise
    raise AssertionError("the last attempt raises")
