"""Decisions about one queue (a topic that a group processes as jobs), without IO.

The inputs are requests, time and the results of looks; the outputs are rows, answers and effects. An answer
is sent once all earlier rows are committed, so every later coordinator knows the granted leases.

Decides: leases, deliveries, dead letters, and the replies about receipts; also that all workers use the tags
of the first worker, so that no worker misses jobs that another worker's tags have skipped. Leaves to others:
which open job is next (``open_jobs``), reading the topic and storing dead letters (the effects), all queues
(``all_queues``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from queues import job_steps
from queues.effects import Bury, Look, Looked
from queues.ended import End, EndedDeliveries
from queues.look_ahead import LookAhead
from queues.open_jobs import OpenJobs, Place
from queues.ports import Groups, Row
from queues.records import Job, Queue
from queues.requests import (
    Abandon,
    Delivered,
    QueueView,
    Receive,
    Received,
    Reopen,
    Settle,
    Settled,
    Token,
)
from queues.room import RETRY_AFTER_MS, Room, no_room
from queues.rows import QueueRows
from queues.waiters import Waiter, Waiters
from raftlog.errors import Conflict, NoLeader, RaftlogError
from raftlog.hosting.agreement import check_same_tags
from raftlog.hosting.decisions import RequestId
from raftlog.hosting.known_topics import KnownTopics
from raftlog.records.tags import TagSelection, tag_fields

OPENED_MAX: Final = 400  # jobs that one step opens or ends, so that its rows fit into one batch
IDLE_MS: Final = 60_000  # time for which jobs read ahead are kept without requests
NOTHING: Final = Received()
EXPIRED: Final = "the lease ended without an answer"


class WorkQueue:
    """One queue. Call ``take_over``, which adds the stored jobs, before any other method."""

    def __init__(self, group: str, topic: str, groups: Groups, room: Room, ended: EndedDeliveries) -> None:
        """All queues of a partition share ``room`` and ``ended``."""
        self._name = group, topic
        self._group = group
        self._topic = topic
        self._groups = groups
        self._room = room
        self._ended = ended
        self._topic_id = ""
        self._partitions = 0  # all partitions below are known to ``_ahead``
        self._selection: TagSelection | None = None
        self._rows = QueueRows(group, topic, groups)
        self._ahead = LookAhead(room.ahead)
        self._waiters = Waiters()
        self._burials: list[Bury] = []  # dead letters to store once their rows are written
        self._touched_ms = 0
        self._client = ""  # address of the newest receive
        self._jobs = OpenJobs()

    def take_over(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """Take over the stored jobs, some jobs per step. Call no other method before the last step.

        Leases continue for their remaining time. Dead letters that may not have been stored are stored again.

        Jobs without the row of their partition come from an incomplete write. That was either a deletion,
        which begins with that row, or the first step in the partition, which was not answered. The rows of
        these jobs are deleted, so that the records are jobs again.
        """
        rows, stored = self._rows.queues(), self._rows.jobs()
        jobs = {slot: job for slot, job in stored.items() if job.partition in rows}
        is_ordered = any(row.is_ordered for row in rows.values())
        self._touched_ms = now_ms
        self._jobs = OpenJobs(is_ordered=is_ordered)
        yield from self._jobs.take_over(jobs, now_ms, wall_ms, is_time_known=self._groups.is_time_known)
        self._room.open.add(self._group, len(self._jobs))
        for partition, row in rows.items():
            self._topic_id = row.topic_id
            self._selection = self._selection or TagSelection.in_fields(row)
            self._ahead.add(partition, row.next_offset)
        for job in jobs.values():  # an incomplete write may have jobs above the offset of the queue row
            self._ahead.add(job.partition, job.offset + 1)
        for place in self._jobs.dead():
            self._bury(place)
        self._write([self._rows.job(slot, None) for slot in sorted(stored.keys() - jobs)], (), wall_ms)

    # Time.

    def next_deadline_ms(self) -> int | None:
        """The time in milliseconds at which ``tick`` must be called at the latest.

        None if no ``tick`` is needed before the next request.
        """
        times = [self._jobs.next_deadline_ms(), self._waiters.next_end_ms(self._touched_ms)]
        if self._waiters:
            times.append(None if self._is_full() else self._ahead.next_retry_ms())
        elif not len(self._jobs):
            times.append(self._touched_ms + IDLE_MS)
        return min((time for time in times if time is not None), default=None)

    @property
    def is_known(self) -> bool:
        """Whether the queue's topic id is known: from a receive, or from stored rows."""
        return bool(self._topic_id)

    def is_idle(self, now_ms: int) -> bool:
        """Whether dropping this object loses only jobs read ahead: unused for ``IDLE_MS``, no open jobs."""
        return not self._waiters and not len(self._jobs) and now_ms >= self._touched_ms + IDLE_MS

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End the leases and pauses (up to ``OPENED_MAX``) and the waits that are due."""
        rows: list[Row] = []
        for place in self._jobs.ended(now_ms, OPENED_MAX):
            job = self._jobs.get(place)
            assert job is not None
            if job.state == "leased":
                self._groups.tally.leases_expired += 1
                if job.deliveries >= job.deliveries_max:
                    rows.append(self._died(place, job, EXPIRED))
        self._write(rows, (), wall_ms)
        self._serve(now_ms, wall_ms)

    # Requests.

    def receive(
        self, request_id: RequestId, ask: Receive, topics: KnownTopics, now_ms: int, wall_ms: int
    ) -> None:
        """Answer with jobs as soon as there are any. Raises ``Conflict`` for another order or other tags.

        Raises ``NoLeader`` if the topic id differs from the queue's id and is not the current id here.
        """
        self._touched_ms = now_ms
        self._client = ask.client
        held = self._jobs.held_under(ask.lease)
        if held:  # a repeated request, whose first answer was lost
            self._groups.answer(request_id, Received(tuple(self._delivered(place) for place in held)))
            return
        self._set_up(ask, topics)
        self._dismiss(ask.lease)
        self._waiters.add(Waiter(request_id, ask, now_ms + ask.wait_ms, self._ahead.mark))
        self._serve(now_ms, wall_ms)

    def settle(self, request_id: RequestId, ask: Settle, now_ms: int, wall_ms: int) -> None:
        """Carry out a worker's report for each token that has a valid lease."""
        rows = list[Row]()
        tokens = dict.fromkeys(ask.tokens)  # without repetitions
        held = {token: self._settled(token, ask, rows, now_ms, wall_ms) for token in tokens}
        lost = [index for index, token in enumerate(ask.tokens) if not held[token]]
        places = {token.partition for token in tokens}
        self._write(rows, places, wall_ms)
        self._groups.answer(request_id, Settled(lost=tuple(lost), until_ms=wall_ms + ask.time_ms))
        self._serve(now_ms, wall_ms)

    def abandon(self, request_id: RequestId, ask: Abandon, now_ms: int, wall_ms: int) -> None:
        """Release the jobs of a lease, and end its receive if the receive still waits."""
        self._dismiss(ask.lease)
        tokens = tuple(Token(*place, ask.lease) for place in self._jobs.held_under(ask.lease))
        release = Settle(group=self._group, topic=self._topic, tokens=tokens, how="release")
        self.settle(request_id, release, now_ms, wall_ms)

    def reopen(self, request_id: RequestId, ask: Reopen, now_ms: int, wall_ms: int) -> None:
        """Make dead letters jobs again, after the open jobs of their keys.

        A repeated request about a job that has become a dead letter again opens no job. Records that were not
        delivered yet, and records of a topic that was created again, are skipped: they will be delivered
        anyway. Raises ``Overloaded``, and ``NoLeader`` while a partition is unknown here, or for other tags.
        """
        rows = list[Row]()
        if not self._room.has(self._group, len(self._jobs), len(ask.jobs)):
            raise no_room(self._group, self._topic, len(self._jobs))
        jobs = ask.jobs if ask.topic_id == self._topic_id else ()
        if any(self._ahead.next_offset(dead.partition) is None for dead in jobs):
            raise self._not_known_yet()
        if jobs and TagSelection.in_fields(ask) != self._selection:
            raise self._not_known_yet()
        for dead in jobs:
            place = dead.partition, dead.offset
            job, given = self._jobs.get(place), self._ahead.next_offset(dead.partition)
            assert given is not None
            is_dead = job is None or (job.state == "dead" and job.redrives < dead.redrives)
            if dead.offset < given and is_dead:
                job = self._opened(place, dead.key) if job is None else job
                rows.append(self._put(place, job_steps.redriven(job, dead.redrives), None))
        self._write(rows, {dead.partition for dead in ask.jobs}, wall_ms)
        self._groups.answer(request_id, Settled())
        self._serve(now_ms, wall_ms)

    def _dismiss(self, lease: bytes) -> None:
        """Answer the waiting receive with this lease without jobs, if such a receive exists."""
        waiter = self._waiters.with_lease(lease)
        if waiter is not None:
            self._answer(waiter, NOTHING)

    def _dismiss_all(self, reply: Received | RaftlogError = NOTHING) -> None:
        for waiter in list(self._waiters):
            self._answer(waiter, reply)

    def look_at(self, partitions: int) -> None:
        """Add the topic's new partitions, up to the count ``partitions``; the next ``tick`` reads them."""
        if self._topic_id:
            for partition in range(self._partitions, partitions):
                if self._ahead.next_offset(partition) is None:
                    self._ahead.add(partition, self._rows.committed(partition, self._topic_id))
            self._partitions = max(self._partitions, partitions)

    def forget(self, request_id: RequestId) -> None:
        """Drop a waiting receive, because its caller has gone."""
        self._waiters.remove(request_id)

    def view(self) -> QueueView:
        """The state of the queue after all written rows are committed."""
        ahead, is_ordered = self._ahead, self._jobs.is_ordered
        parts = self._jobs.views({part: ahead.next_offset(part) or 0 for part in ahead.partitions})
        receivers = len(self._waiters)
        return QueueView(
            topic_id=self._topic_id,
            is_ordered=is_ordered,
            parts=parts,
            receivers=receivers,
            **tag_fields(self._selection),
        )

    def end(self) -> None:
        """Delete the queue: answer all waiting receives without jobs, and delete the queue's rows."""
        self._dismiss_all()
        self._room.open.add(self._group, -len(self._jobs))
        self._rows.delete()
        self._ahead.drop()
        self._ahead = LookAhead(self._room.ahead)
        self._jobs = OpenJobs()
        self._topic_id, self._selection, self._partitions = "", None, 0

    def drop(self) -> None:
        """Forget the jobs that were read ahead, because this object is not used any more."""
        self._ahead.drop()

    # Results of effects.

    def looked(self, look: Look, result: Looked, now_ms: int, wall_ms: int) -> None:
        """Add the jobs that a look has found, and serve waiting receives."""

        def is_new(offset: int) -> bool:
            return (look.partition, offset) not in self._jobs

        if self._is_own(look) and self._ahead.looked(look, result, now_ms, is_new):
            if not result.found and result.next_offset != result.offset:  # control records, or none any more
                self._write([], (look.partition,), wall_ms)
            self._serve(now_ms, wall_ms)

    def look_failed(self, look: Look, error: RaftlogError, now_ms: int, wall_ms: int) -> None:
        """Note a failed look, which is repeated while receives wait.

        If all partitions fail and the error is permanent, all waiting receives are answered with it.
        """
        if self._is_own(look) and self._ahead.failed(look, error, now_ms):
            if self._ahead.error is not None and not error.retryable:
                self._dismiss_all(error)
            self._serve(now_ms, wall_ms)

    def _is_own(self, look: Look) -> bool:
        """Whether a look belongs to the current queue, not to a queue that was deleted since."""
        asked = (look.topic_id, look.with_keys, look.selection)
        return asked == (self._topic_id, self._jobs.is_ordered, self._selection)

    def buried(self, bury: Bury, now_ms: int, wall_ms: int) -> None:
        """Close a job that was stored in the dead-letter topic, or whose record or topic was deleted.

        A late report about an earlier dead letter of a redriven job is ignored.
        """
        place = bury.partition, bury.offset
        job = self._jobs.get(place)
        is_newest = job is not None and job.state == "dead" and job.redrives == bury.redrives
        if bury.topic_id == self._topic_id and job is not None and is_newest:
            self._groups.tally.jobs_dead += 1
            self._ended.remember(self._name, place, End(job.lease, "dead"))
            self._write([self._closed(place)], (place[0],), wall_ms)
            self._serve(now_ms, wall_ms)

    def _serve(self, now_ms: int, wall_ms: int) -> None:
        """Lease jobs to waiting receives, begin looks, and answer receives whose time is up."""
        if not self._waiters:
            return
        self._touched_ms = now_ms
        while self._waiters and self._lease_to(next(iter(self._waiters)), now_ms, wall_ms):
            pass
        if not (is_full := self._is_full()):
            self._look(now_ms)
        below = self._ahead.mark + 1 if is_full else self._ahead.informed_below()
        for waiter in self._waiters.over(now_ms, below):
            self._answer(waiter, self._nothing())

    def _look(self, now_ms: int) -> None:
        may_wait = self._waiters.may_wait(now_ms)
        for place in self._ahead.wanted(now_ms, self._waiters.newest_mark, may_wait=may_wait):
            names = (self._group, self._topic, self._topic_id)
            self._groups.perform(Look(*names, *place, self._jobs.is_ordered, self._selection))

    def _nothing(self) -> Received | RaftlogError:
        """The answer to a receive that gets no job."""
        if self._is_full():
            return no_room(self._group, self._topic, len(self._jobs))
        return self._ahead.error or Received()

    def _is_full(self) -> bool:
        return not self._room.has(self._group, len(self._jobs))

    def _lease_to(self, waiter: Waiter, now_ms: int, wall_ms: int) -> bool:
        """Lease jobs to a receive and answer it; return whether there was any job."""
        ask = waiter.ask
        rows: list[Row] = []
        places: list[Place] = []
        while len(places) < ask.count_max and (place := self._jobs.take_ready()) is not None:
            rows.append(self._leased(place, ask, now_ms, wall_ms))
            places.append(place)
        while (
            len(places) < ask.count_max and len(rows) < OPENED_MAX and (new := self._open_next()) is not None
        ):
            place, job, problem = new
            if problem:
                rows.append(self._died(place, job, problem))
            elif self._jobs.is_blocked(place):
                rows.append(self._row(place, job))
            else:
                rows.append(self._leased(place, ask, now_ms, wall_ms))
                places.append(place)
        opened = {row[1].partition for row in rows if isinstance(row[1], Job)}
        self._write(rows, opened, wall_ms)
        if not places:
            return len(rows) >= OPENED_MAX and self._lease_to(waiter, now_ms, wall_ms)
        self._groups.tally.jobs_delivered += len(places)
        self._answer(waiter, Received(tuple(self._delivered(place) for place in sorted(places))))
        return True

    def _open_next(self) -> tuple[Place, Job, str] | None:
        """Open the next job that was read ahead; return its place, the job, and the problem of its record.

        None without such a job, or if the limits allow no more open jobs.
        """
        given = None if self._is_full() else self._ahead.give()
        if given is None:
            return None
        partition, found = given
        return (partition, found.offset), self._opened((partition, found.offset), found.key), found.problem

    def _opened(self, place: Place, key: bytes) -> Job:
        self._room.open.add(self._group, 1)
        self._ended.forget(self._name, place)
        return self._jobs.open(place, key)

    def _leased(self, place: Place, ask: Receive, now_ms: int, wall_ms: int) -> Row:
        before = self._jobs.get(place)
        assert before is not None
        if before.deliveries:
            self._groups.tally.jobs_redelivered += 1
        if before.state == "waiting" and before.lease:
            self._ended.remember(self._name, place, End(before.lease, "given back"))
        return self._put(place, job_steps.leased(before, ask, wall_ms), now_ms + ask.lease_ms)

    def _settled(self, token: Token, ask: Settle, rows: list[Row], now_ms: int, wall_ms: int) -> bool:
        """Add the row that settles one token; return False if its lease has ended.

        A repetition adds no row.
        """
        place = token.partition, token.offset
        job = self._jobs.get(place)
        if job is None or job.lease != token.lease:
            return self._has_ended(token, ask, is_open=job is not None)
        if job.state == "dead":
            return ask.how in ("nack", "dead")
        if ask.how == "ack":
            self._groups.tally.jobs_done += 1
            rows.append(self._closed(place))
            return True
        if job.state == "waiting":
            return ask.how == "nack"
        if ask.how == "extend":
            if not self._jobs.is_held(place):
                return False
            longer = job_steps.extended(job, ask.time_ms, wall_ms)
            rows.append(self._put(place, longer, now_ms + ask.time_ms))
        elif ask.how == "release":
            rows.append(self._put(place, job_steps.released(job), None))
        elif ask.how == "dead" or job.deliveries >= job.deliveries_max:
            rows.append(self._died(place, job, ask.reason))
        else:
            again = job_steps.given_back(job, ask.time_ms, wall_ms, self._kept(ask.reason))
            rows.append(self._put(place, again, now_ms + ask.time_ms if ask.time_ms else None))
        return True

    def _has_ended(self, token: Token, ask: Settle, *, is_open: bool) -> bool:
        """Whether a delivery that no row shows has ended as its worker reports, as far as this coordinator
        knows.
        """
        end = self._ended.get(self._name, (token.partition, token.offset))
        is_own = end is not None and end.lease == token.lease
        if end is not None and end.how == "dead":
            return is_own and ask.how in ("nack", "dead")
        if is_open or ask.how == "nack":
            return is_own and ask.how == "nack"
        given = self._ahead.next_offset(token.partition)
        return ask.how in ("ack", "dead") and given is not None and token.offset < given

    def _died(self, place: Place, job: Job, reason: str) -> Row:
        row = self._put(place, job_steps.dead(job, self._kept(reason)), None)
        self._bury(place)
        return row

    def _kept(self, reason: str) -> str:
        return self._room.kept_reason(self._group, reason)

    def _bury(self, place: Place) -> None:
        job = self._jobs.get(place)
        assert job is not None
        self._burials.append(
            Bury(self._group, self._topic, self._topic_id, *place, job.deliveries, job.reason, job.redrives)
        )

    def _put(self, place: Place, job: Job, until_ms: int | None) -> Row:
        job = job_steps.dated(job, is_time_known=self._groups.is_time_known)
        self._jobs.put(place, job, until_ms)
        return self._row(place, job)

    def _row(self, place: Place, job: Job) -> Row:
        return self._rows.job(self._jobs.slot_of(place), job)

    def _closed(self, place: Place) -> Row:
        self._room.open.add(self._group, -1)
        return self._rows.job(self._jobs.close(place), None)

    def _delivered(self, place: Place) -> Delivered:
        job = self._jobs.get(place)
        assert job is not None
        return Delivered(*place, job.deliveries, job.due_ms)

    def _set_up(self, ask: Receive, topics: KnownTopics) -> None:
        """Set up the queue by its first receive.

        Check that later receives agree with it, and add new partitions.
        """
        if self._topic_id not in ("", ask.topic_id):
            if topics.topic_ids.get(self._topic) != ask.topic_id:  # it may be the previous topic
                raise self._not_known_yet()
            self.end()
        if not self._topic_id:
            self._topic_id = ask.topic_id
            self._jobs.is_ordered = ask.is_ordered
            self._selection = TagSelection.in_fields(ask)
        self._check_agrees(ask)
        self.look_at(topics.counts.get(self._topic, 0))

    def _check_agrees(self, ask: Receive) -> None:
        if self._jobs.is_ordered != ask.is_ordered:
            flag = str(self._jobs.is_ordered).lower()
            raise Conflict(
                f"this queue has ordered_by_key={flag}: receive with this value, or first delete the queue"
            )
        if TagSelection.in_fields(ask) != self._selection:
            remedy = "receive with the tags of the queue, use another group, or first delete the queue"
            check_same_tags(ask, self.view(), "this queue delivers", remedy)

    def _not_known_yet(self) -> NoLeader:
        return NoLeader(
            f"topic {self._topic} has changed, and not all brokers know it yet; retry",
            retry_after_ms=RETRY_AFTER_MS,
        )

    def _write(self, rows: list[Row], partitions: Iterable[int], wall_ms: int) -> None:
        """Write rows of jobs and the progress of their partitions, then request the dead letters to store."""
        for partition in sorted(set(partitions)):
            end = self._ahead.next_offset(partition)
            if end is not None:
                start = self._jobs.start(partition, end)
                rows += self._rows.progress(
                    partition, self._row_of_queue(partition, end, wall_ms), start, wall_ms
                )
        self._rows.write(rows, wall_ms, self._client)
        for burial in self._burials:
            self._groups.perform(burial)
        self._burials.clear()

    def _row_of_queue(self, partition: int, end: int, wall_ms: int) -> Queue:
        return Queue(
            topic_id=self._topic_id,
            next_offset=end,
            is_ordered=self._jobs.is_ordered,
            used_ms=self._rows.used_ms(partition, wall_ms),
            **tag_fields(self._selection),
        )

    def _answer(self, waiter: Waiter, reply: Received | RaftlogError) -> None:
        self._waiters.remove(waiter.request_id)
        self._groups.answer(waiter.request_id, reply)
