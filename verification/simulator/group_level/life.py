"""Runs one group: members and coordinators with faults, then a phase without faults, then the final
checks.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

from groups.coordination import Coordination
from groups.outputs import Output
from groups.plans import MakePlan, Planned, planned
from groups.records import Key, Value
from groups.requests import Commit, Request
from groups.state import GroupsState
from raftlog.errors import RaftlogError
from raftlog.hosting.decisions import Answer, Write
from raftlog.hosting.known_topics import KnownTopics
from verification.simulator.gc_off import gc_off
from verification.simulator.group_level.checker import SETTLES, TOLD, GroupChecker
from verification.simulator.group_level.member import GROUP, OTHER, TOPIC, Member, identity
from verification.simulator.group_level.odds import GroupOdds
from verification.simulator.result import Broken, Result, Violation
from verification.simulator.trace import Trace

WALL_MS: Final = 1_700_000_000_000
QUIET_ROUNDS: Final = 4  # of a session and a rebalance
OTHER_PARTITIONS: Final = 2
TICK_MS: Final = 50
FAULTS: Final = {"fail over": 4, "pause": 3, "crash": 2, "leave": 1, "join": 2, "partitions": 1}
"""Kinds of faults, with their relative frequency."""
ANSWER_LOST: Final = "answer lost"
"""The kind of the fault that an answer is lost; it happens at any time, beside the drawn faults."""


class _Coordinator:
    """A coordinator of the group, during one epoch. Its appends commit in order, unless it is
    deposed before.
    """

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        state = GroupsState()
        state.restore(life.checker.state.snapshot())
        self.coordination = Coordination(
            state,
            KnownTopics(life.counts),
            now_ms=life.now_ms,
            wall_ms=WALL_MS + life.now_ms,
            offsets_retention_ms=1 << 40,
        )
        self.is_deposed = False
        self._open: dict[int, tuple[Member, Request]] = {}
        self.pending: list[Output] = []  # in order, the first is being appended
        self._is_appending = False
        self.carry_out()

    def receive(self, member: Member, request: Request) -> None:
        """Handle a request that has arrived."""
        life = self._life
        request_id = next(life.ids)
        self._open[request_id] = member, request
        self.coordination.receive(request_id, request, life.now_ms, WALL_MS + life.now_ms)
        self.carry_out()

    def tick(self) -> None:
        """Let the coordinator act on timers that are due."""
        life = self._life
        if self.coordination.next_deadline_ms() <= life.now_ms:
            self.coordination.tick(life.now_ms, WALL_MS + life.now_ms)
            self.coordination.expire(life.now_ms, WALL_MS + life.now_ms)
            self.carry_out()

    def carry_out(self) -> None:
        """Carry out the core's outputs. Answers wait until the records before them are committed; a deposed
        coordinator commits no more records.
        """
        self.pending += self.coordination.take()
        while self.pending and not isinstance(wanted := self.pending[0], Write):
            del self.pending[0]
            if isinstance(wanted, MakePlan):
                self._life.after(self._life.planning_ms(), partial(self._make_plan, wanted))
            else:
                self._answer(wanted)
        if self.pending and not self._is_appending and not self.is_deposed:
            self._is_appending = True
            self._life.after(self._life.drawn(self._life.odds.commit_ms), self._appended)

    def _appended(self) -> None:
        if self.is_deposed:
            return
        self._is_appending = False
        write = self.pending.pop(0)
        assert isinstance(write, Write)
        self._life.commit(write.rows)
        self.carry_out()

    def _make_plan(self, asked: MakePlan) -> None:
        outcome: Planned | RaftlogError
        try:
            outcome = planned(asked)
        except RaftlogError as problem:
            outcome = problem
        self.coordination.planned(asked, outcome, self._life.now_ms, WALL_MS + self._life.now_ms)
        self.carry_out()

    def _answer(self, answer: object) -> None:
        assert isinstance(answer, Answer)
        found = self._open.pop(answer.request_id, None)
        if found is None:
            raise Broken(TOLD, f"request {answer.request_id} is answered twice")
        self._life.send_answer(*found, answer.reply)


class GroupLife:
    """One run of a group; ``run`` may be called once."""

    def __init__(self, seed: int, odds: GroupOdds | None = None, *, keeps_lines: bool = False) -> None:
        self.odds = odds or GroupOdds.drawn(random.Random(f"{seed} odds"))
        self.rng = random.Random(f"{seed} group")
        self._plans = random.Random(f"{seed} plans")
        self.now_ms = 0
        self.trace = Trace(lambda: self.now_ms / 1000, keeps_lines=keeps_lines)
        self.faults: Counter[str] = Counter()
        self.acknowledged = 0
        self.counts = {TOPIC: self.odds.partitions, OTHER: OTHER_PARTITIONS}
        self.checker = GroupChecker(GROUP)
        self.ids = count(1)
        self._order = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._names = count(1)
        self._is_quiet = False
        self._former: list[_Coordinator] = []
        self._coordinator = _Coordinator(self)
        self.members = [self._new_member() for _ in range(self.odds.members)]

    def drawn(self, mean_ms: int) -> int:
        """Draw a random duration in milliseconds with this mean."""
        return 1 + int(self.rng.expovariate(1.0) * mean_ms)

    def planning_ms(self) -> int:
        """Draw the duration of planning in milliseconds: mostly shorter than a message takes, sometimes a
        second.
        """
        return self._plans.choice((0, 0, 0, 1_000))

    def after(self, milliseconds: int, event: Callable[[], None]) -> None:
        """Schedule an event after a number of milliseconds."""
        heapq.heappush(self._events, (self.now_ms + milliseconds, next(self._order), event))

    def run(self) -> None:
        """Run the group to the end. Raises ``Broken``."""
        self.after(self.drawn(self.odds.fault_every_ms), self._fault)
        self.after(TICK_MS, self._tick)
        self.after(self.odds.faulty_ms, self._be_quiet)
        end_ms = self.odds.faulty_ms + QUIET_ROUNDS * (self.odds.session_ms + self.odds.rebalance_ms)
        while self.now_ms < end_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        living = {member.name for member in self.members if member.is_alive}
        topics = {TOPIC, *(topic for member in self.members if member.is_alive for topic in member.topics)}
        targets = {(topic, number) for topic in topics for number in range(self.counts[topic])}
        self.checker.settled(living, targets)
        for member in self.members:
            if member.is_alive and member.generation != self.checker.group.generation:
                raise Broken(SETTLES, f"{member.name} is in {member.generation}")

    def commit(self, rows: tuple[tuple[Key, Value | None], ...]) -> None:
        """Append rows to the committed records of the group."""
        for key, value in rows:
            self.trace.note(None, f"{key} {value}")
            self.checker.committed(key, value)

    def send(self, member: Member, request: Request) -> None:
        """Send a request once; or twice; or again much later; sometimes to a deposed coordinator."""
        copies = [self.drawn(self.odds.delay_ms)]
        if not self._is_quiet:
            if self.rng.random() < self.odds.doubled:
                copies.append(self.drawn(self.odds.delay_ms))
            if self.rng.random() < self.odds.late:
                copies.append(self.odds.session_ms + self.drawn(self.odds.delay_ms))
        for delay_ms in copies:
            self.after(delay_ms, lambda: self._arrive(member, request))

    def send_answer(self, member: Member, request: Request, reply: object) -> None:
        """Send an answer to a member; the answer may be lost."""
        if isinstance(reply, RaftlogError):
            self.checker.refused(request, reply)
        if not self._is_quiet and self.rng.random() < self.odds.lost:
            self.faults[ANSWER_LOST] += 1
            return
        self.acknowledged += isinstance(request, Commit)
        self.after(self.drawn(self.odds.delay_ms), lambda: self._answered(member, request, reply))

    def _arrive(self, member: Member, request: Request) -> None:
        former = self._former
        coordinator = self.rng.choice(former) if former and self.rng.random() < 0.3 else self._coordinator
        self.checker.sends(request)
        coordinator.receive(member, request)

    def _answered(self, member: Member, request: Request, reply: object) -> None:
        if member.is_alive and member.paused_until_ms <= self.now_ms:
            member.answered(request, reply, self.now_ms)  # type: ignore[arg-type]

    def _tick(self) -> None:
        for coordinator in (self._coordinator, *self._former):
            coordinator.tick()
        for member in self.members:
            if member.is_alive and member.next_ms <= self.now_ms:
                member.act(self.now_ms)
        self.after(TICK_MS, self._tick)

    # Faults.

    def _fault(self) -> None:
        if self._is_quiet:
            return
        faults = {
            "fail over": self._fail_over,
            "pause": self._pause,
            "crash": self._crash,
            "leave": self._leave,
            "join": self._join,
            "partitions": self._add_partition,
        }
        kind = self.rng.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.faults[kind] += 1
        self.trace.note(None, f"fault: {kind}")
        faults[kind]()
        self.after(self.drawn(self.odds.fault_every_ms), self._fault)

    def _fail_over(self) -> None:
        """Replace the coordinator. Some of its pending appends may still be committed; the next coordinator
        begins with the committed state.
        """
        old = self._coordinator
        old.is_deposed = True
        writes = [each for each in old.pending if isinstance(each, Write)]
        for write in writes[: self.rng.randint(0, len(writes))]:
            self.commit(write.rows)
        self._former.append(old)
        self.after(self.drawn(self.odds.zombie_ms), lambda: self._former.remove(old))
        self._coordinator = _Coordinator(self)

    def _pause(self) -> None:
        """Pause a member's process, as SIGSTOP does; answers that arrive during the pause are lost."""
        member = self._any()
        if member is not None:
            member.paused_until_ms = self.now_ms + self.drawn(self.odds.session_ms)

    def _crash(self) -> None:
        """Crash a member. A static member returns with a new member id. Other members return with a new id,
        return with their former id, or stay away.
        """
        member = self._any()
        if member is None:
            return
        member.is_alive = False
        if member.instance or self.rng.random() < 0.5:
            self.members.append(self._new_member(member))

    def _leave(self) -> None:
        member = self._any()
        if member is not None:
            member.leave()

    def _join(self) -> None:
        if sum(member.is_alive for member in self.members) < 2 * self.odds.members:
            self.members.append(self._new_member())

    def _add_partition(self) -> None:
        self.counts[TOPIC] += 1
        for coordinator in (self._coordinator, *self._former):
            coordinator.coordination.partitions_changed({TOPIC}, self.now_ms)
            coordinator.carry_out()

    def _be_quiet(self) -> None:
        self._is_quiet = True
        for member in self.members:
            member.paused_until_ms = min(member.paused_until_ms, self.now_ms)
            member.may_change = False

    def _any(self) -> Member | None:
        living = [member for member in self.members if member.is_alive]
        return self.rng.choice(living) if living else None

    def _new_member(self, last: Member | None = None) -> Member:
        name, instance = identity(last, self._names, self.odds, self.rng)
        return Member(
            name, instance, self.odds, random.Random(self.rng.getrandbits(64)), self.send, self.checker
        )


def run_group(seed: int, odds: GroupOdds | None = None, *, keeps_lines: bool = False) -> Result:
    """Run one seed, from the first join of a member to the result of the checks."""
    life = GroupLife(seed, odds, keeps_lines=keeps_lines)
    violations: tuple[Violation, ...] = ()
    with gc_off():
        try:
            life.run()
        except Broken as broken:
            violations = (Violation(life.now_ms / 1000, broken.invariant, broken.detail),)
        except Exception as error:
            violations = (Violation(life.now_ms / 1000, SETTLES, f"{type(error).__name__}: {error}"),)
    for violation in violations:
        life.trace.note(None, f"VIOLATION {violation.invariant}: {violation.detail}")
    return Result(
        name=f"groups:{seed}",
        faults=life.faults,
        acknowledged=life.acknowledged,
        violations=violations,
        simulated_s=life.now_ms / 1000,
        trace=life.trace.hash,
        timeline=life.trace.timeline(),
    )
