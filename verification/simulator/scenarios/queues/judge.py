"""Compares the committed records about the jobs of a queue with the queue's topic, its dead letters, and the
answers to workers.

Decides: whether rules J1 to J6 hold. Leaves to others: the checks at the end of a run (``part``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from groups.records import KINDS, TOPIC, CommittedOffset, OffsetKey
from queues.records import Job, JobKey, Queue, QueueKey
from queues.requests import Delivered, Settle, Settled, Token
from raftlog.errors import LeaseLost, RaftlogError
from raftlog.records.failures import origin_of
from raftlog.records.tags import TagSelection
from raftlog.types import GroupId
from verification.simulator.machine import Machine
from verification.simulator.originals import Original
from verification.simulator.patient_judge import PatientJudge
from verification.simulator.refusals import Attempts, may_be_done
from verification.simulator.result import Broken
from verification.simulator.scenarios.http.wanted_tags import is_wanted
from verification.simulator.scenarios.queues.odds import CREW, LETTERS, MAIL
from verification.simulator.simulated_cluster import SimulatedCluster

HELD: Final = "J1 a job is delivered again only when its lease or pause is over"
DONE: Final = "J2 a job that is done stays done"
COUNTED: Final = "J3 the deliveries of a job are counted"
LOST: Final = "J4 a job is done when its worker has said so, or a dead letter"
ANSWERED: Final = "J5 answers about jobs agree with what is committed"
ORDERED: Final = "J6 one job of a key is delivered at a time, and in order"
REFUSED: Final = "J5 what is refused as not done never happens to a job"
REDRIVEN: Final = "J2 a dead letter is a job again only when somebody has asked for it"

REASON: Final = "of a worker"  # who gives a job up, or back

Place = tuple[int, int]  # partition and offset
Said = tuple[Place, bytes, str]
"""A settlement: the job, the lease of the worker, and the kind of settlement as in ``Settle.how``."""


@dataclass(slots=True)
class Known:
    """The state of one job according to the committed records."""

    job: Job
    deliveries: set[tuple[bytes, int]] = field(default_factory=set)  # the lease and the number of each
    term: int = 0  # of the newest row
    was_dead: bool = False
    is_done: bool = False
    deaths: set[int] = field(default_factory=set)  # how often it had been redriven at each
    has_ended: bool = False  # once at least
    asked: int = 0  # requests to redrive it that were sent
    redrives: int = 0
    behind: frozenset[Place] = frozenset()  # the jobs of its key that were open when it was redriven


class Judge(PatientJudge):
    """Receives every committed batch in order, and every answer to a worker, and checks J1 to J6."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        partition: int,
        *,
        is_ordered: bool,
        selection: TagSelection | None,
    ) -> None:
        """``partition`` of ``__offsets`` has the queue's rows; ``selection`` selects the records that are
        jobs.
        """
        super().__init__(cluster, TOPIC, MAIL, LETTERS)
        self.jobs: dict[Place, Known] = {}
        self.slots: dict[int, Place] = {}
        self.queues: dict[int, Queue] = {}
        self.keys: dict[Place, bytes | None] = {}  # of all records of the topic that are jobs
        self.others: set[Place] = set()  # the other records
        self.letters: set[tuple[Place, int]] = set()  # and how often the job had been redriven
        self.on_leased: Callable[[Machine], None] = lambda machine: None
        self.on_buried: Callable[[], None] = lambda: None
        self.on_redriven: Callable[[Machine], None] = lambda machine: None
        self._partition = partition
        self._is_ordered = is_ordered
        self._selection = selection
        self._said: Attempts[Said] = Attempts(REFUSED)
        self._acknowledged: set[tuple[Place, bytes]] = set()  # by workers, whether or not that was answered
        self._leases: Attempts[bytes] = Attempts(REFUSED)
        self._clocks_are_right = "wall clock" not in cluster.odds.timed

    # What is committed.

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Process newly committed batches of a group."""
        record = self._cluster.checker.groups[group_id]
        place = self.place_of(record)
        if place is None or (place[0] == TOPIC and place[1] != self._partition):
            return
        for batch in self.newly_committed(place, record):
            if place[0] == TOPIC:
                self._take(machine, batch)
            elif place[0] == MAIL:
                self._learn(place[1], batch)
            else:
                self._store(batch)
        self.check_waiting()

    def _learn(self, partition: int, batch: Original) -> None:
        """Note which records of a committed batch of the topic are jobs."""
        for record in batch.records:
            if is_wanted(record.headers, self._selection):
                self.keys[partition, record.offset] = record.key
            else:
                self.others.add((partition, record.offset))

    def _take(self, machine: Machine, batch: Original) -> None:
        """Process the queue's rows in a batch. After a violation the remaining rows are still processed."""
        for record in batch.records:
            row = KINDS.decoded(record.key, record.value)
            assert row is not None
            self._cluster.trace.note(None, f"{row[0]} {row[1]}")
            match row:
                case JobKey(group, _, slot), Job() as job if group == CREW:
                    self.checked(
                        partial(self._put, machine, slot, job, (batch.entry.term, record.timestamp_ms))
                    )
                case JobKey(group, _, slot), _ if group == CREW:
                    self.checked(partial(self._close, slot))
                case QueueKey(group, _, partition), Queue() as queue if group == CREW:
                    self.queues[partition] = queue
                    self.when_known(partial(self._check_opened, partition, queue.next_offset))
                case OffsetKey(group, _, partition), CommittedOffset() as committed if group == CREW:
                    self.when_known(partial(self._check_done, partition, committed.offset, self._open_jobs()))

    def _put(self, machine: Machine, slot: int, job: Job, written: tuple[int, int]) -> None:
        """Process the row of a job; ``written`` has the term and the time at which the row was appended."""
        place = (job.partition, job.offset)
        other = self.slots.setdefault(slot, place)
        self.slots[slot] = place
        known = self.jobs.get(place)
        unopened = Job(partition=job.partition, offset=job.offset, state="waiting")
        before = unopened if known is None else known.job
        if known is None:
            known = self.jobs[place] = Known(job)
            self.when_known(partial(self._check_wanted, place))
        known.job, (before_term, known.term) = job, (known.term, written[0])
        if job.redrives and job.state == "waiting" and (known.is_done or known.was_dead):
            self._redrive(machine, place, known)
            return
        kept = (before.state, before.lease, before.deliveries)
        is_new = job.state == "leased" and kept != ("leased", job.lease, job.deliveries)
        if is_new:
            known.deliveries.add((job.lease, job.deliveries))
        if other != place:
            raise Broken(LOST, f"the row of {other} becomes that of {place}")
        if known.is_done or known.was_dead:
            raise Broken(DONE, f"{place} is open again: {known}")
        known.was_dead = job.state == "dead"
        if known.was_dead:
            known.deaths.add(job.redrives)
            known.has_ended = True
        is_released = job.state == "waiting" and not job.lease and before.state == "leased"
        if job.deliveries != before.deliveries + is_new - is_released:
            raise Broken(COUNTED, f"{place}: {job} after {before}")
        self._check_said(place, job, before)
        if is_new:
            self.checked(partial(self._leases.seen, job.lease))
            spread_ms = 2 if before_term == known.term else self._spread_ms()
            self._check_lease(place, job, before, written[1] + spread_ms)
            self.on_leased(machine)

    def _check_said(self, place: Place, job: Job, before: Job) -> None:
        """Check that a returned, failed or extended job follows from a worker's request that was
        not refused.
        """
        if before.state != "leased":
            return
        if job.state == "dead" and job.reason == REASON:
            self._said.seen((place, job.lease, "dead"), (place, job.lease, "nack"))
        elif job.state == "waiting" and job.lease:
            self._said.seen((place, job.lease, "nack"))
        elif job.state == "leased" and (job.lease, job.deliveries) == (before.lease, before.deliveries):
            self._said.seen((place, job.lease, "extend"))

    def _check_wanted(self, place: Place) -> None:
        if place in self.others:
            raise Broken(LOST, f"{place} is a job, and does not have the tags {self._selection}")

    def _redrive(self, machine: Machine, place: Place, known: Known) -> None:
        """Check a job that is open again after it had ended: not more often than its redrive was
        requested.
        """
        others = frozenset(self.slots.values()) - {place}
        known.behind = others if known.is_done else frozenset()  # what was open had its turn before
        known.is_done = known.was_dead = False
        known.redrives += 1
        if known.redrives > known.asked:
            raise Broken(
                REDRIVEN, f"{place} is open again; its redrive was requested {known.asked} times: {known}"
            )
        if known.job.deliveries or known.job.lease:
            raise Broken(COUNTED, f"{place} is redriven as {known.job}")
        self.on_redriven(machine)

    def _check_lease(self, place: Place, job: Job, before: Job, at_ms: int) -> None:
        """Check that a job is leased again only after its former lease has ended by the coordinator's clock.

        The clocks are right unless a fault of the run changes them.
        """
        if self._clocks_are_right and at_ms < before.due_ms:
            raise Broken(HELD, f"{place} is leased at {at_ms} at the latest: {job} after {before}")
        if self._is_ordered:
            self.when_known(partial(self._check_order, place, self._open_jobs()))

    def _spread_ms(self) -> int:
        """Return by how much the wall clocks of machines that run at different speeds may differ now, in
        milliseconds.
        """
        clocks = [one.rate for one in self._cluster.machines]
        return 2 + int((max(clocks) - min(clocks)) * self._cluster.loop.now * 1000)

    def _open_jobs(self) -> dict[Place, Job]:
        return {place: self.jobs[place].job for place in self.slots.values()}

    def _check_order(self, place: Place, open_jobs: dict[Place, Job]) -> None:
        """Check that jobs of one key are delivered in order. A redriven job comes after all jobs that were
        open at its redrive.
        """
        key, behind, job = self.keys.get(place), self.jobs[place].behind, open_jobs[place]
        for other, other_key in self.keys.items():
            if key is None or other_key != key or other == place or other[0] != place[0]:
                continue
            one = open_jobs.get(other)
            is_earlier = other in behind if job.redrives else other[1] < place[1]
            waits = other not in self.jobs and other[1] < place[1]
            if waits or (one is not None and (one.deliveries or (is_earlier and not one.redrives))):
                raise Broken(ORDERED, f"{place} is delivered before {other} of the same key is done")

    def _close(self, slot: int) -> None:
        place = self.slots.pop(slot, None)
        if place is None:
            raise Broken(DONE, f"slot {slot} is closed again")
        known = self.jobs[place]
        known.is_done = known.has_ended = True
        if known.was_dead:
            letter = place, known.job.redrives

            def check() -> None:
                if letter not in self.letters:
                    raise Broken(LOST, f"{place} is closed as a dead letter, which is not stored: {known}")

            self.when_known(check)
        elif (place, known.job.lease) not in self._acknowledged:
            raise Broken(LOST, f"{place} is closed, but no worker that had it has settled it: {known}")
        else:
            self._said.seen((place, known.job.lease, "ack"))

    def _check_opened(self, partition: int, end: int) -> None:
        for place in self.keys:
            if place[0] == partition and place[1] < end and place not in self.jobs:
                raise Broken(LOST, f"the queue has passed {place} and is at {end}, but no worker has had it")

    def _check_done(self, partition: int, end: int, open_jobs: dict[Place, Job]) -> None:
        for place in self.keys:
            is_open = place in open_jobs or place not in self.jobs
            if place[0] == partition and place[1] < end and is_open:
                raise Broken(LOST, f"{place} is committed, at {end}, and not done: {self.jobs.get(place)}")

    def _store(self, batch: Original) -> None:
        for record in batch.records:
            origin = origin_of((record.key or b"").decode())
            place, redrives = (origin.partition, origin.offset), redrives_of((record.key or b"").decode())
            self.letters.add((place, redrives))
            self.when_known(partial(self._check_letter, place, redrives))
            self.on_buried()

    def _check_letter(self, place: Place, redrives: int) -> None:
        known = self.jobs.get(place)
        if known is None or redrives not in known.deaths:
            raise Broken(LOST, f"{place} is a dead letter, and was not given up: {known}")

    # What workers and operators say, and what they are told.

    def says(self, request: Settle) -> None:
        """Note a worker's settlement before it is sent, because it may be carried out without an answer."""
        (token,) = request.tokens
        place = token.partition, token.offset
        self._said.sends((place, token.lease, request.how))
        if request.how == "ack":
            self._acknowledged.add((place, token.lease))

    def heard(self, request: Settle, answer: Settled | RaftlogError) -> None:
        """Note the answer to a settlement. If the worker's lease had ended, the settlement must change
        nothing.
        """
        (token,) = request.tokens
        error = LeaseLost("its lease is over") if isinstance(answer, Settled) else answer
        if not isinstance(answer, Settled) or answer.lost:
            said = (token.partition, token.offset), token.lease, request.how
            self.checked(partial(self._said.refused, said, error))

    def asks(self, lease: bytes) -> None:
        """Note a worker's request for jobs; ``lease`` is the lease under which it gets them."""
        self._leases.sends(lease)

    def asked_in_vain(self, lease: bytes, error: RaftlogError) -> None:
        """Note that a request for jobs was refused."""
        self.checked(partial(self._leases.refused, lease, error))

    def asks_again(self, place: Place) -> None:
        """Note the request to redrive a dead letter before it is sent, because it may be carried out without
        an answer.
        """
        self.jobs[place].asked += 1

    def redriven_in_vain(self, place: Place, error: RaftlogError) -> None:
        """Note that a request to redrive a dead letter was refused."""
        known = self.jobs[place]
        known.asked -= not may_be_done(error)
        if known.redrives > known.asked:
            detail = f"{place} is open again, and a request for it was refused: {error!r}; {known}"
            self._cluster.violated(REDRIVEN, detail)

    def received(self, lease: bytes, job: Delivered) -> None:
        """Check that a job that a worker has received is committed as delivered to it."""
        place = (job.partition, job.offset)

        def check() -> None:
            known = self.jobs.get(place)
            if known is None or (lease, job.deliveries) not in known.deliveries:
                raise Broken(ANSWERED, f"{place} was delivered, {job}; committed is {known}")

        self.when_known(check)

    def settled(self, token: Token) -> None:
        """Check that a job is done after an acknowledgement of it was accepted."""
        place = (token.partition, token.offset)

        def check() -> None:
            known = self.jobs.get(place)
            if known is None or not known.has_ended:
                raise Broken(ANSWERED, f"{place} is acknowledged, as was answered; committed is {known}")

        self.when_known(check)


def redrives_of(letter_id: str) -> int:
    """Return how often a job was redriven before it became this dead letter, from the dead letter's id."""
    return int(letter_id.partition("#")[2] or 0)
