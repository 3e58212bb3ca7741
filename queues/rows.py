"""Reads and writes the rows of one queue. Pure.

Leaves to others: when rows are written, and the jobs in the rows (``work_queue``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from queues.ports import Groups, Row
from queues.records import Job, JobKey, Queue, QueueKey

USED_MS: Final = 600_000  # precision of ``Queue.used_ms``


class QueueRows:
    """The rows of one queue, in the state after all written rows are committed."""

    def __init__(self, group: str, topic: str, groups: Groups) -> None:
        self._group = group
        self._topic = topic
        self._groups = groups

    def queues(self) -> dict[int, Queue]:
        """The queue rows by partition."""
        rows = self._groups.queues.get(self._group, {}).items()
        return {partition: row for (topic, partition), row in rows if topic == self._topic}

    def jobs(self) -> dict[int, Job]:
        """The rows of open jobs by slot."""
        rows = self._groups.jobs.get(self._group, {}).items()
        return {slot: job for (topic, slot), job in rows if topic == self._topic}

    def committed(self, partition: int, topic_id: str) -> int:
        """The committed offset of the group in the topic with this id; 0 without a committed offset."""
        return self._groups.committed(self._group, self._topic, topic_id, partition) or 0

    def job(self, slot: int, job: Job | None) -> Row:
        """Make the row of an open job, or, with None, the deletion of the job's row."""
        return JobKey(self._group, self._topic, slot), job

    def used_ms(self, partition: int, wall_ms: int) -> int:
        """The time of the last receive to store in a row: ``wall_ms``, or the stored time if the two are
        close.
        """
        before = self._queue(partition)
        used_ms = 0 if before is None else before.used_ms
        return wall_ms if abs(wall_ms - used_ms) >= USED_MS else used_ms

    def progress(self, partition: int, queue: Queue, start: int, wall_ms: int) -> list[Row]:
        """The rows of the queue and of the committed offset, if they have changed.

        All jobs below the committed offset are done.
        """
        rows: list[Row] = []
        before = self._queue(partition)
        if queue != before:
            rows.append((QueueKey(self._group, self._topic, partition), queue))
        place = self._group, self._topic, queue.topic_id, partition
        if self._groups.committed(*place) != start:
            rows.append(self._groups.offset_row(*place, start, wall_ms))
        return rows

    def _queue(self, partition: int) -> Queue | None:
        return self._groups.queues.get(self._group, {}).get((self._topic, partition))

    def write(self, rows: Sequence[Row], wall_ms: int, client: str) -> None:
        """Write rows. If the group is new, also write its row, which counts for the client's limit.

        An existing queue may write while the disk is full, because retention may wait for its jobs.
        """
        if not rows:
            return
        is_new = not self._groups.has_group(self._group)
        created = [self._groups.group_row(self._group, client, wall_ms)] if is_new else []
        self._groups.write(*created, *rows, frees_room=not is_new)

    def delete(self) -> None:
        """Delete all rows except committed offsets; first the queue rows, in case not all deletions are
        written.
        """
        gone: list[Row] = [
            (QueueKey(self._group, self._topic, partition), None) for partition in sorted(self.queues())
        ]
        gone += [self.job(slot, None) for slot in sorted(self.jobs())]
        self._groups.write(*gone)
