"""A coordinator of groups without IO that works off a topic: records, looks, dead letters, and time."""

from __future__ import annotations

from collections.abc import Sequence

from groups.coordination import Coordination
from groups.expiry import Survey
from groups.membership import KnownUntil
from groups.outputs import Output
from groups.plans import MakePlan
from groups.state import GroupsState
from queues.all_queues import QueueLimits
from queues.effects import Bury, Found, Look, Looked
from queues.requests import (
    Abandon,
    DeadJob,
    DeleteQueue,
    QueueView,
    ReadQueue,
    Receive,
    Received,
    Reopen,
    Settle,
    Settled,
    Token,
)
from raftlog.errors import RaftlogError
from raftlog.hosting.decisions import Answer, RequestId, Write
from raftlog.records.tags import TAG_RECORD_HEADER, TagSelection, tag_fields
from tests.helpers.group_coordination import CoordinatedGroups

LEASE_MS = 30_000
Held = tuple[int, int, int]  # partition, offset and deliveries


class WorkedOff(CoordinatedGroups):
    """The group ``g`` works off the topic ``mail``.

    While ``holds_back``, nothing is committed and no effect is carried out until ``carry_out``.
    """

    def __init__(
        self, partitions: int = 1, *, limits: QueueLimits | None = None, retention_ms: int = 1 << 40
    ) -> None:
        self.limits = limits or QueueLimits()
        self.records: dict[int, list[Found]] = {partition: [] for partition in range(partitions)}
        self.tags: dict[tuple[int, int], tuple[str, ...]] = {}  # by partition and offset
        self.selection: TagSelection | None = None  # of all receives that name no other one
        self.ends = dict.fromkeys(range(partitions), 0)
        self.starts = dict.fromkeys(range(partitions), 0)
        self.topic_id = "t1"
        self.skew_ms = 0  # of the wall clock
        self.is_time_known = True  # to the next coordinator
        self.holds_back = False
        self.held_back: list[Output] = []
        self.parked: list[Look] = []
        self.buried: list[Bury] = []
        self.looks: list[Look] = []
        self.burials: list[Bury] = []  # on their way
        self.stores_letters = True
        self.faults: dict[int, RaftlogError] = {}
        self._last_lease = 0
        super().__init__({"mail": partitions}, offsets_retention_ms=retention_ms)

    @property
    def wall_ms(self) -> int:
        """With its skew."""
        return super().wall_ms + self.skew_ms

    def _begin(self, known_until: KnownUntil | None = None) -> Coordination:
        is_known = self.is_time_known
        return Coordination(
            self.committed,
            self.topics,
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
            offsets_retention_ms=self._retention_ms,
            tally=self.tally,
            queue_limits=self.limits,
            known_until=known_until,
            knows_time=lambda: is_known,
        )

    # The topic.

    def produce(self, *keys: bytes, partition: int = 0, tags: tuple[str, ...] = ()) -> list[int]:
        """Records with these keys: their offsets."""
        first = self.ends[partition]
        self.tags |= {(partition, first + n): tags for n in range(len(keys))}
        self.records[partition] += [Found(first + n, key) for n, key in enumerate(keys)]
        self.ends[partition] += len(keys)
        self._wake()
        return list(range(first, self.ends[partition]))

    def spoil(self, count: int = 1, partition: int = 0) -> int:
        """A batch of so many records that nobody can read: its offset."""
        first = self.ends[partition]
        self.records[partition].append(Found(first, problem="the batch cannot be read"))
        self.ends[partition] += count
        self._wake()
        return first

    def jobs(self, partition: int, selection: TagSelection | None) -> list[Found]:
        """The records of a partition that a selection finds; nobody knows what is in a spoiled batch."""
        if selection is None:
            return self.records[partition]
        return [
            each
            for each in self.records[partition]
            if each.problem or selection.matches(self._headers(partition, each.offset))
        ]

    def _headers(self, partition: int, offset: int) -> list[tuple[str, bytes | None]]:
        return [(TAG_RECORD_HEADER, tag.encode()) for tag in self.tags[partition, offset]]

    def redrive(self, *offsets: int, key: bytes = b"", redrives: int = 1) -> None:
        """Dead letters of partition 0 are to be tried again."""
        jobs = tuple(DeadJob(0, offset, key, redrives) for offset in offsets)
        tags = tag_fields(self.selection)
        self.ask(Reopen(group="g", topic="mail", topic_id=self.topic_id, jobs=jobs, **tags), Settled)

    def skip(self, count: int = 1, partition: int = 0) -> None:
        """Control records: offsets without jobs."""
        self.ends[partition] += count
        self._wake()

    def cut(self, start: int, partition: int = 0) -> None:
        """Retention deletes all below ``start``."""
        self.starts[partition] = start
        self.records[partition] = [each for each in self.records[partition] if each.offset >= start]

    def end_looks(self) -> None:
        """The time of the looks that wait for jobs is over."""
        parked, self.parked = self.parked, []
        for look in parked:
            self._looked(look, is_over=True)

    def _wake(self) -> None:
        parked, self.parked = self.parked, []
        for look in parked:
            self._looked(look)

    def _looked(self, look: Look, *, is_over: bool = False) -> None:
        outcome: Looked | RaftlogError
        if look.partition in self.faults:
            outcome = self.faults[look.partition]
        elif not self.starts[look.partition] <= look.offset <= self.ends[look.partition]:
            start, end = self.starts[look.partition], self.ends[look.partition]
            outcome = Looked(look.offset, min(max(look.offset, start), end))
        else:
            jobs = self.jobs(look.partition, look.selection)
            found = [each for each in jobs if each.offset >= look.offset][:4]
            if not look.with_keys:
                found = [each._replace(key=b"") for each in found]
            end = self.ends[look.partition]
            if not found and look.wait_ms and not is_over and (look.selection or end == look.offset):
                self.parked.append(look)
                return
            read = found[-1].offset + 1 if len(found) == 4 else end
            outcome = Looked(look.offset, read, tuple(found), is_at_end=read == end)
        self.coordination.queues.looked(look, outcome, self.now_ms, self.wall_ms)
        self._carry_out()

    # The coordinator.

    def carry_out(self, count: int | None = None) -> None:
        """Commit what was held back, or the first of it."""
        left = 1 << 20 if count is None else count
        while self.held_back and left:
            left -= 1
            self._commit(self.held_back.pop(0))

    def fail_over(self, kept: int = 0) -> None:
        """The first ``kept`` outputs are committed, and nothing else is known."""
        for wanted in self.held_back[:kept]:
            if isinstance(wanted, Write):
                self._commit(wanted)
        self.held_back.clear()
        self.parked.clear()
        self.burials.clear()
        restored = GroupsState()
        restored.restore(self.committed.snapshot())
        self.committed = restored
        self.coordination = self._begin()
        self._carry_out()

    def store_letters(self) -> None:
        """The dead letters on their way arrive."""
        some, self.burials = self.burials, []
        for burial in some:
            self.buried.append(burial)
            self.coordination.queues.buried(burial, self.now_ms, self.wall_ms)
        self._carry_out()

    def _carry_out(self) -> None:
        self.held_back += self.coordination.take()
        if not self.holds_back:
            while self.held_back:
                self._commit(self.held_back.pop(0))

    def _commit(self, wanted: Output) -> None:
        match wanted:
            case Answer(request_id, reply):
                self.answers[request_id] = reply
            case Write(rows):
                self.written.append(rows)
                for key, value in rows:
                    self.committed.put(key, value)
            case Look():
                self.looks.append(wanted)
                self._looked(wanted)
            case MakePlan():
                self.plans.append(wanted)
                self.make_plans()
            case Survey(names, places):
                self.coordination.surveyed(names, dict.fromkeys(places), self.now_ms, self.wall_ms)
                self._carry_out()
            case Bury():
                self.burials.append(wanted)
                if self.stores_letters:
                    self.store_letters()

    # Requests in short.

    def receive(
        self,
        count: int = 1,
        *,
        lease: bytes | None = None,
        lease_ms: int = LEASE_MS,
        deliveries_max: int = 10,
        wait_ms: int = 0,
        is_ordered: bool = False,
        topic_id: str | None = None,
        selection: TagSelection | None = None,
    ) -> RequestId:
        """Ask for jobs."""
        if lease is None:
            self._last_lease += 1
            lease = self._last_lease.to_bytes(8, "big")
        return self.send(
            Receive(
                group="g",
                topic="mail",
                topic_id=topic_id or self.topic_id,
                lease=lease,
                count_max=count,
                lease_ms=lease_ms,
                deliveries_max=deliveries_max,
                wait_ms=wait_ms,
                is_ordered=is_ordered,
                client="10.0.0.1",
                **tag_fields(selection or self.selection),
            )
        )

    @property
    def last_lease(self) -> bytes:
        """Of the newest receive."""
        return self._last_lease.to_bytes(8, "big")

    def held(self, request_id: RequestId) -> list[Held]:
        """The jobs of an answer."""
        answer = self.answered(request_id, Received)
        return [(job.partition, job.offset, job.deliveries) for job in answer.jobs]

    def take(self, count: int = 1, **options: int | bool) -> list[Token]:
        """Jobs that are there now."""
        held = self.held(self.receive(count, **options))  # type: ignore[arg-type]
        return [Token(partition, offset, self.last_lease) for partition, offset, _ in held]

    def settle(
        self, how: str, tokens: Sequence[Token], time_ms: int = 0, reason: str = ""
    ) -> tuple[int, ...]:
        """Say something about jobs: the places of those whose lease is over."""
        request = Settle(
            group="g",
            topic="mail",
            tokens=tuple(tokens),
            how=how,  # type: ignore[arg-type]
            time_ms=time_ms,
            reason=reason,
        )
        return self.ask(request, Settled).lost

    def abandon(self, lease: bytes) -> None:
        """The client of a receive has gone."""
        self.ask(Abandon(group="g", topic="mail", lease=lease), Settled)

    def view(self) -> QueueView:
        """The queue."""
        return self.ask(ReadQueue(group="g", topic="mail"), QueueView)

    def delete_queue(self) -> None:
        """Forget the queue."""
        self.ask(DeleteQueue(group="g", topic="mail"), Settled)

    def done_below(self, partition: int = 0) -> int | None:
        """The committed offset."""
        return self.offset(partition, topic="mail")
