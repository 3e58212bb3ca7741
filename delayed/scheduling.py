"""The schedules of one partition of ``__delayed``, without IO: handles their requests, and fires schedules.

A schedule fires by writing its message and its progress in one batch. So each instant has one message, even
after changes of leader, and the message is delivered once like any other message. The id of the message
follows from the schedule and the instant.

Decides: which instants fire, and which are missed. Leaves to others: the instants of a cron expression
(``cron``), moving messages to their topics (``lanes``).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, assert_never

from msgspec.structs import replace

from delayed import cron
from delayed.draft import Draft, wait_ms
from delayed.records import (
    ID_BYTES,
    Message,
    MessageKey,
    Missed,
    Outcome,
    Producer,
    ProducerKey,
    Row,
    Schedule,
    ScheduleKey,
)
from delayed.requests import (
    CreateSchedule,
    DeleteSchedule,
    DescribedSchedule,
    Done,
    FoundSchedules,
    NeedsProducerId,
    PauseSchedule,
    ReadSchedule,
    ReadSchedules,
    Reply,
    ScheduleRequest,
    ScheduleState,
)
from delayed.state import left_as, size_of
from delayed.tally import Tally
from delayed.values import TopicKey
from raftlog.errors import Conflict, InvalidRequest, Overloaded, ScheduleNotFound
from raftlog.hosting.budget import SHARE
from raftlog.hosting.deadlines import Deadlines

SCHEDULES_MAX: Final = 1_000  # of one partition of ``__delayed``
LATE_MS_MAX: Final = 60_000  # an instant that is later than this is missed
MISSED_MAX: Final = 100  # maximum missed instants that fire
LOOK_MAX: Final = 25  # schedules of one step, which takes some milliseconds
FIRED_BYTES_MAX: Final = 1 << 20  # of one step, which may exceed it by one schedule
PAUSE_MS: Final = 100  # after such a step, to append its records
AGAIN_MS: Final = 1_000  # retry time without room for a message, or if a time zone cannot be read now
SCHEDULE_HEADER: Final = "raftlog.schedule"
INSTANT_HEADER: Final = "raftlog.scheduled_at"
_PREFIX_BYTES: Final = 6
_log = logging.getLogger("raftlog.delayed")


class Scheduling:
    """All schedules of one partition of ``__delayed``, in one leader epoch."""

    def __init__(
        self, draft: Draft, tally: Tally, has_room: Callable[[str, int], bool], add: Callable[[bytes], None]
    ) -> None:
        """``has_room`` is called with a topic and a size in bytes, ``add`` with the id of a new message."""
        self._draft = draft
        self._state = draft.state
        self._tally = tally
        self._has_room = has_room
        self._add = add
        self._due = Deadlines[str]()  # time of the next check of each schedule
        self._fired_bytes = 0  # by the present ``collect``
        self._rests_until_ms = draft.now_ms
        self._names = {_prefix(name): name for name in self._state.schedules}
        for name, schedule in self._state.schedules.items():
            self._look_at(name, schedule.after_ms)

    def deadline_ms(self) -> int:
        """The time in milliseconds at which ``collect`` must be called at the latest.

        Early enough to notice a jump of the wall clock.
        """
        draft = self._draft
        next_ms = self._due.next_ms()
        at_ms = draft.now_ms + wait_ms(None if next_ms is None else next_ms - draft.wall_ms)
        return max(at_ms, self._rests_until_ms)

    def collect(self) -> None:
        """Fire the due instants of up to ``LOOK_MAX`` schedules."""
        if self._draft.now_ms < self._rests_until_ms:
            return
        self._fired_bytes = 0
        for _ in range(LOOK_MAX):
            name = self._due.take(self._draft.wall_ms)
            if name is None:
                return
            try:
                self._fire(name, self._state.schedules[name])
            except Overloaded as lack:  # no record of the schedule is written
                _log.warning("schedule %s cannot fire now, will retry: %s", name, lack)
                self._look_at(name, self._draft.wall_ms + AGAIN_MS)
            if self._fired_bytes >= FIRED_BYTES_MAX:
                self._rests_until_ms = self._draft.now_ms + PAUSE_MS
                return

    def failed(self, ids: Iterable[bytes], reason: str) -> None:
        """End the schedules that have fired these messages, which cannot be delivered."""
        for name in dict.fromkeys(self._names.get(id_[:_PREFIX_BYTES]) for id_ in ids):
            if name is not None and self._state.schedules[name].is_active:
                self._put(name, replace(self._state.schedules[name], failed=reason))

    def fail_of(self, topic: TopicKey, reason: str) -> None:
        """Mark the schedules of a deleted topic as failed, including paused schedules."""
        for name in self._of(topic):
            if not self._state.schedules[name].failed:
                self._put(name, replace(self._state.schedules[name], failed=reason))

    def drop_of(self, topic: TopicKey) -> None:
        """Delete the schedules of a deleted topic."""
        for name in self._of(topic):
            self._delete(name)

    def count_of(self, topic: TopicKey) -> int:
        """The number of schedules of a topic."""
        return len(self._of(topic))

    def _of(self, topic: TopicKey) -> list[str]:
        schedules = self._state.schedules.items()
        return [name for name, each in schedules if (each.topic, each.topic_id) == topic]

    def reply_to(self, request: ScheduleRequest) -> Reply:
        """Carry out a request and return its reply. Raises the error that refuses the request."""
        match request:
            case CreateSchedule():
                return self._create(request)
            case PauseSchedule():
                return self._pause(request)
            case DeleteSchedule():
                return self._delete(request.id)
            case ReadSchedule():
                return FoundSchedules((self._described(request.id, self._found(request.id)),))
            case ReadSchedules():
                return self._list(request)
            case _:
                assert_never(request)

    def _create(self, request: CreateSchedule) -> Reply:
        name, wanted, wall_ms = request.id, request.schedule, self._draft.wall_ms
        if self._state.producer_id is None and request.new_producer_id < 0:
            return NeedsProducerId()
        before = self._state.schedules.get(name)
        if before is not None:
            if not is_same(before, request):
                raise Conflict(f"another schedule has the id {name}: choose another id, or first delete it")
            return FoundSchedules((self._described(name, before),))
        if self._names.get(_prefix(name)) is not None:
            raise Conflict(f"the id {name} collides with the id of another schedule; choose another id")
        if len(self._state.schedules) >= SCHEDULES_MAX:
            raise Conflict(
                f"this partition of __delayed has {SCHEDULES_MAX} schedules; delete one, or choose another id"
            )
        of_topic = sum(each.topic == wanted.topic for each in self._state.schedules.values())
        if of_topic >= SCHEDULES_MAX // SHARE:
            raise Conflict(
                f"this partition of __delayed has {of_topic} schedules of topic {wanted.topic}, the maximum "
                "of one topic; delete one, or choose another id"
            )
        self._draft.check_time()
        cron.check(wanted.cron, wanted.time_zone, wall_ms)
        self._draft.check_disk()
        schedule = replace(wanted, created_ms=wall_ms, after_ms=wall_ms)
        if self._state.producer_id is None:
            self._draft.write(Row(ProducerKey(), Producer(request.new_producer_id)))
        self._put(name, schedule)
        self._names[_prefix(name)] = name
        return FoundSchedules((self._described(name, schedule),))

    def _pause(self, request: PauseSchedule) -> Reply:
        before = schedule = self._found(request.id)
        if request.is_paused != before.is_paused or (before.failed and not request.is_paused):
            if not request.is_paused:
                self._draft.check_time()
            after_ms = max(self._draft.wall_ms, before.fired_ms)  # instants during the pause never fire
            schedule = replace(before, is_paused=request.is_paused, failed="", after_ms=after_ms)
        described = self._described(request.id, schedule)  # may raise, so it precedes the write
        if schedule != before:
            self._draft.check_disk()
            self._put(request.id, schedule)
        return FoundSchedules((described,))

    def _delete(self, name: str) -> Reply:
        if name not in self._state.schedules and left_as(name) in self._state.recent:
            return Done()
        self._found(name)
        self._draft.write(Row(ScheduleKey(name), None, Outcome.CANCELLED))
        self._due.discard(name)
        del self._names[_prefix(name)]
        return Done()

    def _list(self, request: ReadSchedules) -> Reply:
        names = heapq.nsmallest(
            request.count_max,
            (
                name
                for name, one in self._state.schedules.items()
                if name > request.after and request.topic in (None, one.topic)
            ),
        )
        return FoundSchedules(tuple(self._described(name, self._state.schedules[name]) for name in names))

    def _found(self, name: str) -> Schedule:
        found = self._state.schedules.get(name)
        if found is None:
            raise ScheduleNotFound(f"there is no schedule {name}")
        return found

    def _described(self, name: str, schedule: Schedule) -> DescribedSchedule:
        state: ScheduleState = "active"
        if schedule.failed:
            state = "failed"
        elif schedule.is_paused:
            state = "paused"
        return DescribedSchedule(name, schedule, state, _next_ms(schedule))

    def _put(self, name: str, schedule: Schedule) -> None:
        self._draft.write(Row(ScheduleKey(name), schedule))
        self._look_at(name, _next_ms(schedule))

    def _look_at(self, name: str, at_ms: int | None) -> None:
        if at_ms is None:
            self._due.discard(name)
        else:
            self._due.set(name, at_ms)

    # Firing.

    def _fire(self, name: str, schedule: Schedule) -> None:
        """Write a message for each instant that fires, with the progress of the schedule.

        Raises ``Overloaded`` before any record is written.
        """
        first_ms = _next_ms(schedule)
        if first_ms is None and schedule.is_active:
            _log.error(
                "schedule %s cannot fire: its time zone is unknown here, or it has no further instant",
                name,
            )
        if first_ms is None or first_ms > self._draft.wall_ms:
            self._look_at(name, first_ms)
            return
        size_bytes = size_of(_message(name, schedule, first_ms, 0))
        if not (self._draft.has_room() and self._has_room(schedule.topic, size_bytes)):
            self._look_at(name, self._draft.wall_ms + AGAIN_MS)
            return
        instants, last_ms = self._instants(name, schedule, first_ms)
        rows = [
            Row(MessageKey(id_), _message(name, schedule, instant, self._draft.wall_ms))
            for instant in instants
            if (id_ := _id_of(name, instant)) not in self._state.waiting and id_ not in self._state.recent
        ]
        fired_ms = instants[-1] if instants else schedule.fired_ms
        after = replace(schedule, after_ms=last_ms, fired_ms=fired_ms)
        next_ms = _next_ms(after)
        self._draft.write(*rows, Row(ScheduleKey(name), after))
        for row in rows:
            assert isinstance(row.key, MessageKey)
            self._add(row.key.id)
        self._tally.fired += len(rows)
        self._fired_bytes += len(rows) * (len(schedule.value or b"") + len(schedule.key or b""))
        self._look_at(name, next_ms)

    def _instants(self, name: str, schedule: Schedule, first_ms: int) -> tuple[list[int], int]:
        """The instants that fire now, and the newest instant that is due, which may be a missed instant."""
        wall_ms = self._draft.wall_ms
        due = cron.newest(schedule.cron, schedule.time_zone, schedule.after_ms, wall_ms, MISSED_MAX + 1)
        in_time = [instant for instant in due if instant > wall_ms - LATE_MS_MAX]
        missed = [instant for instant in due if instant <= wall_ms - LATE_MS_MAX]
        kept = {Missed.SKIP: [], Missed.ONCE: missed[-1:], Missed.ALL: missed[-MISSED_MAX:]}[schedule.missed]
        if len(kept) < len(missed) or first_ms < due[0]:
            self._tally.missed += 1
            _log.warning(
                "schedule %s has missed instants since %d; %d of them fire now", name, first_ms, len(kept)
            )
        return [*kept, *in_time], due[-1]


def _next_ms(schedule: Schedule) -> int | None:
    if not schedule.is_active:
        return None
    try:
        return cron.next_ms(schedule.cron, schedule.time_zone, schedule.after_ms)
    except InvalidRequest:  # this broker has another database of time zones
        return None


def headers_of(name: str, instant_ms: int) -> tuple[tuple[str, bytes], ...]:
    """The headers that an instant's record has in addition to the headers of its schedule."""
    return (SCHEDULE_HEADER, name.encode()), (INSTANT_HEADER, str(instant_ms).encode())


def _prefix(name: str) -> bytes:
    """The prefix of the ids of a schedule's messages."""
    return sha256(name.encode()).digest()[:_PREFIX_BYTES]


def _id_of(name: str, instant_ms: int) -> bytes:
    return _prefix(name) + instant_ms.to_bytes(ID_BYTES - _PREFIX_BYTES, "big")


def is_same(schedule: Schedule, request: CreateSchedule) -> bool:
    """Whether ``request`` asks for a schedule whose contents equal the contents of ``schedule``."""
    wanted = request.schedule
    if request.names_partition and schedule.partition != wanted.partition:
        return False
    return _contents(schedule) == _contents(wanted)


def _contents(schedule: Schedule) -> Schedule:
    """The contents of a schedule: the schedule without its partition and progress."""
    return replace(schedule, partition=-1, created_ms=0, after_ms=0, fired_ms=-1, is_paused=False, failed="")


def _message(name: str, schedule: Schedule, instant_ms: int, wall_ms: int) -> Message:
    """Make the message that a schedule fires for an instant."""
    return Message(
        topic=schedule.topic,
        topic_id=schedule.topic_id,
        partition=schedule.partition,
        due_ms=instant_ms,
        accepted_ms=wall_ms,
        value=schedule.value,
        key=schedule.key,
        headers=(*schedule.headers, *headers_of(name, instant_ms)),
    )
