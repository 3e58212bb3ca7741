"""A coordinator of groups without IO, on a clock that the test sets. Its records are committed at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from groups import commits
from groups.coordination import STATE_BYTES_MAX, Coordination
from groups.expiry import Survey
from groups.membership import KnownUntil
from groups.outputs import Row
from groups.plans import MakePlan, Planned, planned
from groups.ports import Extent, Place
from groups.requests import (
    AddOffsets,
    Beat,
    Commit,
    Done,
    EndOffsets,
    Heartbeat,
    Join,
    Joined,
    Leave,
    OffsetCommit,
    Plan,
    Reply,
    Request,
    Sync,
    Synced,
)
from groups.state import GroupsState
from groups.tally import Tally
from groups.unconfirmed import Confirm
from raftlog.errors import ProducerFenced, RaftlogError
from raftlog.hosting.decisions import Answer, RequestId, Write
from raftlog.hosting.known_topics import KnownTopics
from raftlog.records.tags import TagSelection, tag_fields

SESSION_MS = 10_000
REBALANCE_MS = 60_000
WALL_MS = 1_700_000_000_000
Expected = TypeVar("Expected")


class CoordinatedGroups:
    """``answers`` has what was answered. ``committed`` is the state that the written records add up to.

    Whether a transaction is open is answered at once, unless ``holds_questions``: then they are in ``asked``.
    """

    def __init__(
        self,
        counts: Mapping[str, int],
        *,
        offsets_retention_ms: int = 1 << 40,
        state_bytes_max: int = STATE_BYTES_MAX,
    ) -> None:
        self._state_bytes_max = state_bytes_max
        self.counts = dict(counts)
        self.topic_ids = dict.fromkeys(counts, "t1")
        self.beginnings: dict[tuple[str, int], int] = {}
        self.topics = KnownTopics(self.counts, self.topic_ids, self.beginnings)
        self.extents: dict[Place, Extent | None] = {}  # of others nothing is left
        self.now_ms = 0
        self.answers: dict[RequestId, Reply | RaftlogError] = {}
        self.committed = GroupsState()
        self.tally = Tally()
        self.written: list[tuple[Row, ...]] = []
        self.makes_plans = True
        self.plans: list[MakePlan] = []  # on their way
        self.asked: list[Confirm] = []
        self.holds_questions = False
        self._open_from: dict[int, int] = {}  # by producer id: the first epoch that has not ended
        self._retention_ms = offsets_retention_ms
        self._last_id = 0
        self.coordination = self._begin()

    def _begin(self, known_until: KnownUntil | None = None) -> Coordination:
        return Coordination(
            self.committed,
            self.topics,
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
            offsets_retention_ms=self._retention_ms,
            tally=self.tally,
            state_bytes_max=self._state_bytes_max,
            known_until=known_until,
        )

    @property
    def wall_ms(self) -> int:
        """The time of day."""
        return WALL_MS + self.now_ms

    def send(self, request: Request) -> RequestId:
        """A request, which may be answered later."""
        self._last_id += 1
        self.coordination.receive(self._last_id, request, self.now_ms, self.wall_ms)
        self._carry_out()
        return self._last_id

    def ask(self, request: Request, kind: type[Expected]) -> Expected:
        """A request that is answered at once, with a reply of this kind."""
        answer = self.answers[self.send(request)]
        assert isinstance(answer, kind), answer
        return answer

    def answered(self, request_id: RequestId, kind: type[Expected]) -> Expected:
        """The answer to a request, of this kind."""
        answer = self.answers[request_id]
        assert isinstance(answer, kind), answer
        return answer

    def forget(self, request_id: RequestId, request: Request) -> None:
        """The caller has gone: it hears of no answer."""
        self.coordination.forget(request_id, request)

    def after(self, milliseconds: int) -> None:
        """Let time pass, deadline by deadline."""
        end_ms = self.now_ms + milliseconds
        while (due_ms := self.coordination.next_deadline_ms()) <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.coordination.tick(self.now_ms, self.wall_ms)
            self.coordination.expire(self.now_ms, self.wall_ms)
            self._carry_out()
        self.now_ms = end_ms

    def set_partitions(self, topic: str, count: int) -> None:
        """The topic has so many partitions from now on."""
        self.counts[topic] = count
        self.coordination.partitions_changed({topic}, self.now_ms)
        self._carry_out()

    def create_again(self, topic: str, topic_id: str) -> None:
        """Deleted and created with as many partitions, which the coordinator sees at once."""
        self.topic_ids[topic] = topic_id
        self.coordination.partitions_changed({topic}, self.now_ms)
        self._carry_out()

    def remove_partition(self, topic: str, topic_id: str, next_offset: int) -> None:
        """The last partition is removed; a later one of its number begins there."""
        self.beginnings[topic_id, self.counts[topic] - 1] = next_offset
        self.set_partitions(topic, self.counts[topic] - 1)

    def fail_over(self) -> None:
        """Another broker coordinates from now on: it knows the records, and nothing else."""
        restored = GroupsState()
        restored.restore(self.committed.snapshot())
        self.committed = restored
        self.asked.clear()
        self.coordination = self._begin()
        self._carry_out()

    def begin_again(self) -> None:
        """The same broker drops its decisions, as after a refused append."""
        self.coordination = self._begin(self.coordination.known_until)
        self._carry_out()

    def _carry_out(self) -> None:
        for wanted in self.coordination.take():
            match wanted:
                case Answer(request_id, reply):
                    assert request_id not in self.answers, "answered twice"
                    self.answers[request_id] = reply
                case Write(rows):
                    self.written.append(rows)
                    for key, value in rows:
                        self.committed.put(key, value)
                case Confirm() if self.holds_questions:
                    self.asked.append(wanted)
                case Confirm(ask=ask):
                    first = self._open_from.get(ask.producer_id, 0)
                    is_over = ask.epoch < first
                    self.confirm(wanted, ProducerFenced("over", current_epoch=first) if is_over else None)
                case MakePlan():
                    self.plans.append(wanted)
                    if self.makes_plans:
                        self.make_plans()
                case Survey(names, places):
                    found = {place: self.extents.get(place) for place in places}
                    self.coordination.surveyed(names, found, self.now_ms, self.wall_ms)
                    self._carry_out()

    def make_plans(self) -> None:
        """The plans on their way are made."""
        some, self.plans = self.plans, []
        for asked in some:
            outcome: Planned | RaftlogError
            try:
                outcome = planned(asked)
            except RaftlogError as problem:
                outcome = problem
            self.coordination.planned(asked, outcome, self.now_ms, self.wall_ms)
        self._carry_out()

    def confirm(self, question: Confirm, refusal: RaftlogError | None = None) -> None:
        """The coordinator of the transaction answers."""
        self.coordination.confirmed(question, refusal, self.now_ms, self.wall_ms)
        self._carry_out()

    # Requests in short.

    def join(
        self,
        member: str,
        *topics: str,
        group: str = "g",
        generation: int = -1,
        strategies: tuple[str, ...] = ("range",),
        instance: str = "",
        owned: dict[str, tuple[int, ...]] | None = None,
        selection: TagSelection | None = None,
        session_ms: int = SESSION_MS,
    ) -> RequestId:
        """Join, or join again."""
        return self.send(
            Join(
                group=group,
                member_id=member,
                topics=topics or ("orders",),
                strategies=strategies,
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=REBALANCE_MS,
                generation=generation,
                instance_id=instance,
                owned=owned,
                **tag_fields(selection),
            )
        )

    def beat(self, member: str, generation: int, kind: type[Expected], *, group: str = "g") -> Expected:
        """A heartbeat."""
        return self.ask(Heartbeat(group=group, member_id=member, generation=generation), kind)

    def beat_quietly(self, member: str, generation: int, *, group: str) -> None:
        """A heartbeat that finds nothing new, without keeping its answer."""
        self.beat(member, generation, Beat, group=group)
        del self.answers[self._last_id]

    def must_rejoin(self, member: str, generation: int) -> bool:
        """What a heartbeat says."""
        return self.beat(member, generation, Beat).must_rejoin

    def sync(
        self,
        member: str,
        generation: int,
        plan: Plan | None = None,
        *,
        group: str = "g",
        is_auto: bool = False,
    ) -> RequestId:
        """Bring or fetch the plan."""
        request = Sync(group=group, member_id=member, generation=generation, plan=plan, is_auto=is_auto)
        return self.send(request)

    def leave(self, member: str, *, group: str = "g") -> RequestId:
        """Leave."""
        return self.send(Leave(group=group, member_id=member))

    def commit(
        self,
        kind: type[Expected],
        offset: int,
        *,
        partition: int = 0,
        topic: str = "orders",
        topic_id: str = "t1",
        member: str = "",
        generation: int = -1,
        group: str = "g",
        may_rewind: bool = False,
        is_forced: bool = False,
        metadata: str = "",
        client: str = "",
    ) -> Expected:
        """Commit one offset."""
        commit = OffsetCommit(
            topic=topic, topic_id=topic_id, partition=partition, offset=offset, metadata=metadata
        )
        request = Commit(
            group=group,
            offsets=(commit,),
            member_id=member,
            generation=generation,
            may_rewind=may_rewind,
            is_forced=is_forced,
            client=client,
        )
        return self.ask(request, kind)

    def add(
        self,
        kind: type[Expected],
        offset: int,
        *,
        partition: int = 0,
        topic_id: str = "t1",
        producer: int = 7,
        epoch: int = 0,
        member: str = "",
        generation: int = -1,
        group: str = "g",
    ) -> Expected:
        """Add one offset of ``orders`` to a transaction."""
        request = AddOffsets(
            group=group,
            offsets=(OffsetCommit(topic="orders", topic_id=topic_id, partition=partition, offset=offset),),
            member_id=member,
            generation=generation,
            producer_id=producer,
            epoch=epoch,
            transaction=f"copy-{producer}@{producer}.{epoch}",
        )
        return self.ask(request, kind)

    def end(self, *, is_commit: bool, producer: int = 7, epoch: int = 0, group: str = "g") -> None:
        """The end of a transaction."""
        self._open_from[producer] = max(epoch + 1, self._open_from.get(producer, 0))
        self.ask(EndOffsets(group=group, producer_id=producer, epoch=epoch, is_commit=is_commit), Done)

    def pending(self, group: str = "g") -> list[tuple[int, int]]:
        """Partitions and offsets that wait for the end of a transaction."""
        rows = self.committed.transactions.get(group, {})
        return [(each.partition, each.offset.offset) for each in commits.pending_offsets(rows)]

    def offset(self, partition: int = 0, *, topic: str = "orders", group: str = "g") -> int | None:
        """What is committed."""
        found = self.committed.offsets.get(group, {}).get((topic, partition))
        return None if found is None else found.offset

    def stable(self, *members: str, group: str = "g", session_ms: int = SESSION_MS) -> int:
        """Members join an empty group and get their partitions; gives the generation."""
        waiting = {member: self.join(member, group=group, session_ms=session_ms) for member in members[:1]}
        generation = self.answered(waiting[members[0]], Joined).generation
        waiting |= {member: self.join(member, group=group, session_ms=session_ms) for member in members[1:]}
        if len(members) > 1:
            waiting[members[0]] = self.join(members[0], group=group, generation=generation)
        joined = {member: self.answered(request, Joined) for member, request in waiting.items()}
        leader = joined[members[0]].leader
        generation = joined[members[0]].generation
        for member in (leader, *(each for each in members if each != leader)):
            self.ask(Sync(group=group, member_id=member, generation=generation, is_auto=True), Synced)
        return generation
