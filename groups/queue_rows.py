"""The rows of one queue: what is stored of it, and what is written. Pure.

Leaves to others: when rows are written, and which jobs they have (``work_queue``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from groups.outputs import Outputs, Row
from groups.records import CommittedOffset, Group, GroupKey, Job, JobKey, OffsetKey, Queue, QueueKey

USED_MS: Final = 600_000  # how exact ``Queue.used_ms`` is


class QueueRows:
    """Reads the state that holds once all rows are committed."""

    def __init__(self, group: str, topic: str, outputs: Outputs) -> None:
        self._group = group
        self._topic = topic
        self._outputs = outputs

    def queues(self) -> dict[int, Queue]:
        """By partition."""
        rows = self._outputs.state.queues.get(self._group, {}).items()
        return {partition: row for (topic, partition), row in rows if topic == self._topic}

    def jobs(self) -> dict[int, Job]:
        """By slot."""
        rows = self._outputs.state.jobs.get(self._group, {}).items()
        return {slot: job for (topic, slot), job in rows if topic == self._topic}

    def committed(self, partition: int, topic_id: str) -> int:
        """Where the group goes on in this very topic; 0 without a committed offset."""
        found = self._outputs.state.offsets.get(self._group, {}).get((self._topic, partition))
        return found.offset if found is not None and found.topic_id == topic_id else 0

    def job(self, slot: int, job: Job | None) -> Row:
        """The row of an open job, or the end of one."""
        return JobKey(self._group, self._topic, slot), job

    def used_ms(self, partition: int, wall_ms: int) -> int:
        """When jobs were received, as a row has it now: about ``wall_ms``."""
        before = self._queue(partition)
        used_ms = 0 if before is None else before.used_ms
        return wall_ms if abs(wall_ms - used_ms) >= USED_MS else used_ms

    def progress(self, partition: int, queue: Queue, start: int, wall_ms: int) -> list[Row]:
        """What is new: the row of the queue, and that jobs below ``start`` are done."""
        rows: list[Row] = []
        place = (self._topic, partition)
        before = self._queue(partition)
        if queue != before:
            rows.append((QueueKey(self._group, *place), queue))
        known = self._outputs.state.offsets.get(self._group, {}).get(place)
        if known is None or (known.offset, known.topic_id) != (start, queue.topic_id):
            committed = CommittedOffset(offset=start, topic_id=queue.topic_id, committed_ms=wall_ms)
            rows.append((OffsetKey(self._group, *place), committed))
        return rows

    def _queue(self, partition: int) -> Queue | None:
        return self._outputs.state.queues.get(self._group, {}).get((self._topic, partition))

    def write(self, rows: Sequence[Row], wall_ms: int, client: str, *, frees_room: bool = False) -> None:
        """With a row of the group, which the first job creates, and which then belongs to the client."""
        if not rows:
            return
        is_new = self._group not in self._outputs.state.groups
        created: list[Row] = (
            [(GroupKey(self._group), Group(changed_ms=wall_ms, client=client))] if is_new else []
        )
        self._outputs.write(*created, *rows, frees_room=frees_room)

    def delete(self) -> None:
        """All but the committed offsets. Cut anywhere, it leaves no partition whose jobs are gone in part."""
        gone: list[Row] = [
            (QueueKey(self._group, self._topic, partition), None) for partition in sorted(self.queues())
        ]
        gone += [self.job(slot, None) for slot in sorted(self.jobs())]
        if gone:
            self._outputs.write(*gone)
