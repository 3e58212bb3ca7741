"""Redrives dead letters of a queue: the queue delivers their records again from the topic.

Decides: which dead letters can be redriven: the log must still have the record, with tags that the queue
selects. Leaves to others: the jobs (``queues.work_queue``), and settling the dead letters (``dead_letters``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.http.routes import Call
from api.resources.dead_letter_pages import Letter
from api.resources.dead_letter_scan import records_of
from partitions.values import FetchRequest
from queues.job_steps import key_digest
from queues.requests import DeadJob, QueueView, ReadQueue, Reopen
from raftlog.errors import GroupNotFound, OffsetOutOfRange, PartitionNotFound, QueueNotFound
from raftlog.records.failures import FailedRecord
from raftlog.records.tags import TagSelection, tag_fields
from raftlog.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class RedrivenJobs:
    """The queue of a topic and a group, to which dead letters are redriven."""

    call: Call
    topic: str
    topic_id: str
    group: str
    selection: TagSelection | None

    @classmethod
    async def of(cls, call: Call, topic: str, group: str) -> RedrivenJobs | None:
        """Return the queue; None if the group does not use the topic as a queue."""
        await call.hear_of_path()
        found = call.services.controller.image.topics.get(topic)
        if found is None:
            return None
        ask = ReadQueue(group=group, topic=topic)
        try:
            queue = await call.services.groups.ask(ask, timeout_ms=call.services.limits.control_timeout_ms)
        except (GroupNotFound, QueueNotFound):
            return None
        assert isinstance(queue, QueueView), queue
        return cls(call, topic, found.topic_id, group, TagSelection.in_fields(queue))

    async def found(self, letters: Sequence[Letter]) -> list[Letter]:
        """Return the dead letters whose unchanged records are in the topic and match the queue's tags.

        A record of a deleted topic of this name is not in the topic.
        """
        return [letter for letter in letters if await self._is_there(letter.record)]

    async def redrive(self, letters: Sequence[Letter]) -> None:
        """Return the jobs to the queue; returns once the queue will deliver them again."""
        jobs = tuple(
            DeadJob(
                letter.record.origin.partition,
                letter.record.origin.offset,
                key_digest(letter.record.key),
                letter.record.redrives + 1,
            )
            for letter in letters
        )
        ask = Reopen(
            group=self.group,
            topic=self.topic,
            topic_id=self.topic_id,
            jobs=jobs,
            **tag_fields(self.selection),
        )
        await self.call.services.groups.ask(ask, timeout_ms=self.call.services.limits.control_timeout_ms)

    async def _is_there(self, record: FailedRecord) -> bool:
        target = TopicPartition(self.topic, record.origin.partition)
        request = FetchRequest(position=Offset(record.origin.offset), bytes_max=1)
        try:
            result = await self.call.services.log.fetch(target, request)
        except (OffsetOutOfRange, PartitionNotFound):
            return False
        return any(
            (stored.offset, stored.key, stored.value) == (record.origin.offset, record.key, record.value)
            and (self.selection is None or self.selection.matches(stored.headers))
            for stored, _ in records_of(result)
        )
