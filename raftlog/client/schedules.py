"""Creates, lists, pauses and deletes schedules.

Decides: every request may be repeated. This is safe since the client chooses the id of a schedule.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from raftlog.client import values
from raftlog.client.delayed import record_in_json
from raftlog.client.session import Session
from raftlog.wire import schedules as wire


class AsyncSchedules:
    """The schedules of the cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def create(
        self,
        topic: str,
        value: values.Value = None,
        *,
        cron: str,
        time_zone: str = "UTC",
        missed: wire.Missed = "once",
        schedule_id: str | None = None,
        key: values.Key = None,
        partition: int | None = None,
        headers: values.Headers | None = None,
        tags: Sequence[str] = (),
    ) -> wire.ScheduleDescription:
        """Store one record at each time of a cron expression, such as ``30 3 * * MON-FRI``.

        ``missed`` is for times that passed more than a minute ago because no broker could store the record.
        ``skip`` stores nothing for these times, ``once`` stores a record for the newest time, and ``all`` a
        record for each of the newest 100 times. Raises ``Conflict`` if the id belongs to another schedule.
        """
        body = _Create(
            topic=topic,
            cron=cron,
            time_zone=time_zone,
            missed=missed,
            schedule_id=schedule_id or uuid.uuid4().hex,
            record=record_in_json(value, key=key, partition=partition, headers=headers, tags=tags),
        )
        return await self._session.call(wire.CREATE, body)

    async def list(self, topic: str | None = None) -> list[wire.ScheduleDescription]:
        """Return the schedules of one topic, or of all topics."""
        query = {} if topic is None else {"topic": str.__str__(topic)}  # an Enum is text, too
        return await self._session.all_items(wire.LIST, query=query)

    async def describe(self, schedule_id: str) -> wire.ScheduleDescription:
        """One schedule. Raises ``ScheduleNotFound``."""
        return await self._session.call(wire.DESCRIBE, schedule_id=schedule_id)

    async def pause(self, schedule_id: str) -> wire.ScheduleDescription:
        """Stop the schedule until ``resume``. Raises ``ScheduleNotFound``."""
        return await self._change(schedule_id, paused=True)

    async def resume(self, schedule_id: str) -> wire.ScheduleDescription:
        """Continue the schedule from now on, also after a failure. Raises ``ScheduleNotFound``."""
        return await self._change(schedule_id, paused=False)

    async def delete(self, schedule_id: str) -> None:
        """Delete the schedule: it stores no more records. Raises ``ScheduleNotFound``."""
        await self._session.call(wire.DELETE, schedule_id=schedule_id)

    async def _change(self, schedule_id: str, *, paused: bool) -> wire.ScheduleDescription:
        return await self._session.call(wire.CHANGE, wire.ChangeSchedule(paused), schedule_id=schedule_id)


class _Create(msgspec.Struct):
    topic: str
    cron: str
    time_zone: str
    missed: str
    schedule_id: str
    record: msgspec.Struct
