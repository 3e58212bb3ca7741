"""All queues of one partition of ``__offsets``, without IO.

Decides: which queues exist, when each queue has work to do, and that a group does not use a topic both as a
queue and with members. Leaves to others: the jobs of one queue (``work_queue``).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Final, assert_never

from queues.effects import Bury, Look, Looked
from queues.ended import EndedDeliveries, Name
from queues.ports import Groups
from queues.requests import (
    Abandon,
    DeleteQueue,
    QueueRequest,
    ReadQueue,
    Receive,
    Reopen,
    Settle,
    Settled,
)
from queues.room import BYTES_MAX, Room
from queues.work_queue import WorkQueue
from raftlog.errors import Conflict, QueueNotFound, RaftlogError
from raftlog.hosting.budget import Usage
from raftlog.hosting.by_topic import ByTopic
from raftlog.hosting.decisions import RequestId
from raftlog.hosting.known_topics import KnownTopics


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits of the number and bytes of open jobs."""

    queue_max: int = 20_000
    total_max: int = 100_000  # of all queues of one partition of ``__offsets``
    bytes_max: int = BYTES_MAX  # of all open jobs of one partition of ``__offsets``


DEFAULTS: Final = QueueLimits()
_OVER: Final = object()
_topic_of: Final = itemgetter(0)  # the topic of a pair of topic and slot


class Queues:
    """All queues of one partition of ``__offsets``, made from the rows that ``groups`` have stored."""

    def __init__(self, groups: Groups, topics: KnownTopics, limits: QueueLimits) -> None:
        self._groups = groups
        self._topics = topics
        self._room = Room(limits.queue_max, limits.total_max, limits.bytes_max, groups.reasons)
        self._ended = EndedDeliveries()
        self._queues: dict[Name, WorkQueue] = {}
        self._loaded = Usage()  # queues by group
        self._by_topic: ByTopic[Name] = ByTopic()
        self._changed: set[Name] = set()  # queues whose topics have changed
        self._deadlines: list[tuple[int, Name]] = []
        self._next: dict[Name, int] = {}  # valid deadline of each queue; other heap entries are stale
        # Queues that have not been taken over yet, with the number of their jobs.
        self._left_behind: dict[Name, int] = {}
        self._taken: dict[Name, Iterator[None]] = {}  # queues that are being taken over
        for group, jobs in groups.jobs.items():
            self._room.open.add(group, len(jobs))
            for topic, count in sorted(Counter(map(_topic_of, jobs)).items()):
                self._left_behind[group, topic] = count

    # Time.

    def next_deadline_ms(self) -> int | None:
        """The time in milliseconds at which ``ends`` is due at the latest; None without a deadline."""
        return self._deadlines[0][0] if self._deadlines else None

    @property
    def is_behind(self) -> bool:
        """Whether queues have not been taken over yet, so that ``catch_up`` must be called."""
        return bool(self._left_behind)

    def catch_up(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """Take over queues from the former coordinator, with a pause after every few jobs."""
        while self._left_behind:
            name = next(reversed(self._left_behind))
            yield from self._taking_over(name, now_ms, wall_ms)
            self._after(name, now_ms)
            yield

    def ends(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """End the leases, pauses and waits that are due, one queue per step."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._deadlines)
            if self._next.get(name) == due_ms:
                del self._next[name]
                if name in self._changed:
                    self._changed.remove(name)
                    self._queues[name].look_at(self._topics.counts.get(name[1], 0))
                self._queues[name].tick(now_ms, wall_ms)
                self._after(name, now_ms, now_ms + 1)
            yield

    # Requests.

    def receive(self, request_id: RequestId, request: QueueRequest, now_ms: int, wall_ms: int) -> None:
        """Handle a request, which is answered now or later. Raises the error that refuses the request."""
        name = (request.group, request.topic)
        if name in self._left_behind:
            self._queue(name, now_ms, wall_ms)
        try:
            self._receive(name, request_id, request, now_ms, wall_ms)
        finally:  # a refused request may have taken over the queue
            self._after(name, now_ms)

    def _receive(
        self, name: Name, request_id: RequestId, request: QueueRequest, now_ms: int, wall_ms: int
    ) -> None:
        match request:
            case Receive():
                self._queue(name, now_ms, wall_ms).receive(request_id, request, self._topics, now_ms, wall_ms)
            case Settle():
                if name in self._queues or self.has(*name):
                    self._queue(name, now_ms, wall_ms).settle(request_id, request, now_ms, wall_ms)
                else:
                    self._groups.answer(request_id, Settled(lost=tuple(range(len(request.tokens)))))
            case Abandon():
                if name in self._queues:
                    self._queues[name].abandon(request_id, request, now_ms, wall_ms)
                else:
                    self._groups.answer(request_id, Settled())
            case Reopen():
                self._check_exists(name)
                self._queue(name, now_ms, wall_ms).reopen(request_id, request, now_ms, wall_ms)
            case ReadQueue():
                self._check_exists(name)
                self._groups.answer(request_id, self._queue(name, now_ms, wall_ms).view())
            case DeleteQueue():
                self._check_exists(name)
                self._queue(name, now_ms, wall_ms).end()
                self._groups.answer(request_id, Settled())
            case _:
                assert_never(request)

    def forget(self, request_id: RequestId, request: QueueRequest) -> None:
        """Drop a waiting request, because its caller has gone."""
        queue = self._queues.get((request.group, request.topic))
        if queue is not None:
            queue.forget(request_id)

    def partitions_changed(self, topics: Collection[str], now_ms: int) -> None:
        """Note topics whose partitions have changed. The next ticks examine the new partitions."""
        for name in chain.from_iterable(map(self._by_topic.of, sorted(topics))):
            self._changed.add(name)
            self._next[name] = now_ms
            heapq.heappush(self._deadlines, (now_ms, name))

    # Results of effects.

    def looked(self, look: Look, outcome: Looked | RaftlogError, now_ms: int, wall_ms: int) -> None:
        """Pass the result or the error of a look to the queue that requested it."""
        queue = self._queues.get((look.group, look.topic))
        if queue is None:
            return
        if isinstance(outcome, Looked):
            queue.looked(look, outcome, now_ms, wall_ms)
        else:
            queue.look_failed(look, outcome, now_ms, wall_ms)
        self._after((look.group, look.topic), now_ms)

    def buried(self, bury: Bury, now_ms: int, wall_ms: int) -> None:
        """Close a job that was stored in the dead-letter topic, or whose record was deleted."""
        queue = self._queues.get((bury.group, bury.topic))
        if queue is not None:
            queue.buried(bury, now_ms, wall_ms)
            self._after((bury.group, bury.topic), now_ms)

    # Groups.

    @property
    def open_jobs(self) -> int:
        """The number of open jobs of all queues."""
        return self._room.open.total

    @property
    def open_bytes(self) -> int:
        """The bytes of the open jobs of all queues."""
        return self._room.used_bytes()

    def has(self, group: str, topic: str) -> bool:
        """Whether the queue has a stored row."""
        return any(topic == stored for stored, _ in self._groups.queues.get(group, {}))

    def check_free(self, group: str, topics: Collection[str]) -> None:
        """Raise ``Conflict`` if the group uses any of these topics as a queue."""
        for topic, _ in self._groups.queues.get(group, {}):
            if topic in topics:
                raise Conflict(
                    f"group {group} uses topic {topic} as a queue; use another group, or first delete the "
                    f"queue: DELETE /v1/queues/{topic}/{group}"
                )

    def is_in_use(self, group: str) -> bool:
        """Whether a group has open jobs, or a worker has asked for jobs of the group in the last minute."""
        return bool(self._loaded.of(group)) or group in self._groups.jobs

    def used_ms(self, group: str) -> int:
        """The approximate wall-clock time of a group's last receive in milliseconds; 0 without a receive."""
        return max((row.used_ms for row in self._groups.queues.get(group, {}).values()), default=0)

    def delete_of(self, group: str, now_ms: int, wall_ms: int) -> None:
        """Delete all queues of a group."""
        topics = {topic for topic, _ in self._groups.queues.get(group, {})}
        topics |= {topic for name, topic in (*self._queues, *self._left_behind) if name == group}
        for topic in sorted(topics):
            self._queue((group, topic), now_ms, wall_ms).end()
            self._after((group, topic), now_ms)

    # Parts.

    def _queue(self, name: Name, now_ms: int, wall_ms: int) -> WorkQueue:
        if name not in self._queues:
            for _ in self._taking_over(name, now_ms, wall_ms):
                pass
        return self._queues[name]

    def _taking_over(self, name: Name, now_ms: int, wall_ms: int) -> Iterator[None]:
        """Take over the rest of a queue's jobs, some jobs per step. A later call continues the work."""
        if name not in self._taken:
            self._taken[name] = self._take_over(name, now_ms, wall_ms)
        while next(self._taken[name], _OVER) is not _OVER:
            yield
        del self._taken[name]

    def _take_over(self, name: Name, now_ms: int, wall_ms: int) -> Iterator[None]:
        found = WorkQueue(*name, self._groups, self._room, self._ended)
        yield from found.take_over(now_ms, wall_ms)
        self._queues[name] = found
        self._loaded.add(name[0], 1)
        self._room.open.add(name[0], -self._left_behind.pop(name, 0))  # counted again by ``take_over``
        self._by_topic.change(name, set(), {name[1]})
        found.look_at(self._topics.counts.get(name[1], 0))

    def _check_exists(self, name: Name) -> None:
        found = self._queues.get(name)
        if not (self.has(*name) if found is None else found.is_known):
            raise QueueNotFound(
                f"group {name[0]} has no queue of topic {name[1]}; the first receive creates it"
            )

    def _after(self, name: Name, now_ms: int, earliest_ms: int = 0) -> None:
        """Schedule the next deadline of a queue, not before ``earliest_ms``.

        Drop the object of an idle queue.
        """
        queue = self._queues.get(name)
        if queue is None:
            return
        if queue.is_idle(now_ms):
            queue.drop()
            del self._queues[name]
            self._loaded.add(name[0], -1)
            self._by_topic.change(name, {name[1]}, set())
            self._changed.discard(name)
            self._next.pop(name, None)
            return
        wanted_ms, known_ms = queue.next_deadline_ms(), self._next.get(name)
        if wanted_ms is not None and (known_ms is None or wanted_ms < known_ms):
            wanted_ms = max(wanted_ms, earliest_ms)
            self._next[name] = wanted_ms
            heapq.heappush(self._deadlines, (wanted_ms, name))
