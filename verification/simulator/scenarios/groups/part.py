"""The consumer group of a run: its members, their faults, and the committed records of its partition of
``__offsets``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Final

from broker.broker import Broker
from groups.records import KINDS, GroupKey, Key, Value
from groups.records import TOPIC as OFFSETS
from groups.requests import (
    Commit,
    DeleteGroup,
    DeleteOffsets,
    Done,
    GroupView,
    Join,
    Joined,
    OffsetCommit,
    ReadGroup,
    Reply,
    Request,
    Synced,
)
from raftlog.errors import RaftlogError
from raftlog.records.keys import partition_for_key
from raftlog.types import GroupId
from verification.simulator.clients import TIMEOUT_MS, TOPIC, Client
from verification.simulator.convergence import Convergence
from verification.simulator.faults import Faults
from verification.simulator.group_level.checker import KEPT, SETTLES, GroupChecker, Target
from verification.simulator.group_level.member import GROUP, Member, identity
from verification.simulator.group_level.odds import GroupOdds
from verification.simulator.machine import Machine
from verification.simulator.originals import Original
from verification.simulator.part import Actor, Part
from verification.simulator.records import GroupRecord
from verification.simulator.result import Broken
from verification.simulator.scenarios.expiry.odds import ExpiryOdds
from verification.simulator.scenarios.groups.idle_groups import EXPIRED, IdleGroups
from verification.simulator.scenarios.groups.odds import AFTER_A_GROUP_RECORD
from verification.simulator.simulated_cluster import SimulatedCluster

FRESH: Final = "C8 a read of a group shows what was acknowledged before"
SAME: Final = "C9 every replica has the groups that are committed"
SETTLING_ROUNDS: Final = 4  # of a session and a rebalance, as at the level of groups
TICK_S: Final = 0.05
READ_EVERY_S: Final = 0.5
OTHERS: Final = 3  # groups without members

_FOLDER: Final = re.compile(rf"/{OFFSETS}-[0-9a-f]{{32}}/Partition-(\d+)$")

Position = tuple[int, int]
"""Generation and offset of a commit: later commits must not be below them."""


class _Checker(GroupChecker):
    """A group checker that delays the check of an answer to a member until all committed records are known.

    A leader with a full disk may commit an entry that only the other replicas have stored. Such an entry may
    be in none of the logs that the checker has read so far.
    """

    def __init__(self, group: str, when_known: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(group)
        self._when_known = when_known
        self.floor: dict[Target, Position] = {}  # acknowledged
        self.generation = 0  # the newest that a member was told
        self.ends = 0  # how often the group was forgotten

    def committed(self, key: Key, value: Value | None) -> None:
        if key == GroupKey(GROUP) and value is None:
            self.floor.clear()
            self.generation = 0
            self.ends += 1
        super().committed(key, value)

    def joined(self, member: str, reply: Joined) -> None:
        self.generation = max(self.generation, reply.generation)
        self._when_known(partial(super().joined, member, reply))

    def synced(self, member: str, reply: Synced) -> None:
        self._when_known(partial(super().synced, member, reply))

    def acknowledged(self, member: str, generation: int, target: Target, offset: int) -> None:
        self.floor[target] = max(self.floor.get(target, (-1, -1)), (generation, offset))
        self._when_known(partial(super().acknowledged, member, generation, target, offset))


class ConsumerGroup(Part):
    """The consumer group of a run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: GroupOdds) -> None:
        self._cluster = cluster
        self._faults = faults
        self._odds = odds
        self._rng = cluster.rng("consumer group")
        self._client = Client(cluster, "of a group")
        self._partition = partition_for_key(GROUP.encode(), cluster.odds.settings.offsets_partitions)
        self._record: GroupRecord | None = None
        self._known = 0  # how many committed entries were checked
        self._waiting: list[Callable[[], None]] = []
        self._names = count(1)
        self._requests: set[asyncio.Task[None]] = set()
        self._is_over = False
        self.checker = _Checker(GROUP, self._when_known)
        expiry = cluster.odds.of(ExpiryOdds)
        self._idle = None if expiry is None else IdleGroups(cluster, expiry, self._partition, self._commit)
        self._appended: dict[tuple[int, int], float] = {}  # by base offset and term: when it was in a log
        self.members = [self._new_member() for _ in range(odds.members)]
        self.acknowledged = 0

    # What is committed.

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Handle a group's commit index that has changed on a machine."""
        self._look(group_id)
        if self._is_coordinated_by(machine, group_id):
            self._faults.aim(AFTER_A_GROUP_RECORD, machine)

    def _look(self, group_id: GroupId) -> None:
        record = self._cluster.checker.groups[group_id]
        if self._record is None and any(
            found is not None and int(found[1]) == self._partition
            for replica in record.replicas.values()
            for found in (_FOLDER.search(replica.directory),)
        ):
            self._record = record
        if self._record is not None and self._record.group_id == group_id:
            self._record = record
            self._take(record)

    def _is_coordinated_by(self, machine: Machine, group_id: GroupId) -> bool:
        """Return whether these records have the group's rows, and this machine leads their partition."""
        if self._record is None or self._record.group_id != group_id or machine.broker is None:
            return False
        found = machine.broker.host.groups.get(group_id)
        return found is not None and found.is_leader

    def _take(self, record: GroupRecord) -> None:
        assert record.originals is not None
        record.originals.on_new = self._is_appended
        new, self._known = record.committed[self._known :], len(record.committed)
        for entry in new:
            for stored in record.originals.of(entry).records:
                row = KINDS.decoded(stored.key, stored.value)
                assert row is not None
                self._cluster.trace.note(None, f"{row[0]} {row[1]}")
                self._checked(partial(self.checker.committed, *row))
                if self._idle is not None and row[0].group in self._idle.names:
                    written = (
                        record.leaders[entry.term],
                        self._appended.get((entry.base, entry.term), self._cluster.loop.now),
                    )
                    self._checked(partial(self._idle.committed, *written, *row))
        if not self._is_behind:
            waiting, self._waiting = self._waiting, []
            for check in waiting:
                self._checked(check)

    def _is_appended(self, batch: Original) -> None:
        self._appended[batch.entry.base, batch.entry.term] = self._cluster.loop.now

    @property
    def _is_behind(self) -> bool:
        """Return whether some broker knows more entries to be committed than the logs show that were read."""
        record = self._record
        if record is None:
            return False
        end = record.committed[-1].last if record.committed else -1
        brokers = [one.broker for one in self._cluster.machines if one.broker is not None]
        groups = [broker.host.groups.get(record.group_id) for broker in brokers]
        return any(group is not None and group.commit_index > end for group in groups)

    def _when_known(self, check: Callable[[], None]) -> None:
        for machine in self._cluster.machines:
            self._cluster.checker.stepped(machine)
        if self._is_behind:
            self._waiting.append(check)
        else:
            self._checked(check)

    def _checked(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Broken as broken:
            self._cluster.violated(broken.invariant, broken.detail)

    # Members and their requests.

    def actors(self) -> list[Actor]:
        """Return the task that runs all members."""
        return [self]

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """Return a random partition, mostly of ``__offsets``."""
        return (OFFSETS, self._cluster.odds.settings.offsets_partitions) if rng.random() < 0.7 else None

    async def run(self) -> None:
        """Run the members, faults and reads until the producers of the run end; then wait for all
        requests.
        """
        faults_s = reads_s = self._cluster.loop.now
        if self._idle is not None:
            for name in sorted(self._idle.names):
                self._start(self._idle.use(name))
        while not self._is_over:
            await self._cluster.rest()
            now_s = self._cluster.loop.now
            if self._idle is not None:
                self._idle.look()
            for member in self.members:
                if member.is_alive and member.next_ms <= self._now_ms:
                    member.act(self._now_ms)
            if not self._cluster.is_healed and now_s >= faults_s:
                faults_s = now_s + self._drawn_s(self._odds.fault_every_ms)
                self._fault()
            if now_s >= reads_s:
                reads_s = now_s + READ_EVERY_S
                self._start(self._read())
                self._start(self._use_others())
            await asyncio.sleep(TICK_S)
        while self._requests:
            await asyncio.wait(self._requests)

    @property
    def _now_ms(self) -> int:
        return int(self._cluster.loop.now * 1000)

    def _drawn_s(self, mean_ms: int) -> float:
        return self._rng.expovariate(1.0) * mean_ms / 1000

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _send(self, member: Member, request: Request) -> None:
        """Send a request once; or twice; or again much later; each time to any broker."""
        delays_s = [self._drawn_s(self._odds.delay_ms)]
        if not self._cluster.is_healed:
            if self._rng.random() < self._odds.doubled:
                delays_s.append(self._drawn_s(self._odds.delay_ms))
            if self._rng.random() < self._odds.late:
                delays_s.append(self._odds.session_ms / 1000 + self._drawn_s(self._odds.delay_ms))
        for delay_s in delays_s:
            self._start(self._deliver(member, request, delay_s))

    async def _deliver(self, member: Member, request: Request, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        reply: Reply | RaftlogError
        try:
            reply = await self._ask(request, lambda broker, reply: member.check(request, reply))
        except RaftlogError as error:
            reply = error
        if not self._cluster.is_healed and self._rng.random() < self._odds.lost:
            return
        self.acknowledged += isinstance(request, Commit) and isinstance(reply, Done)
        if member.is_alive and member.paused_until_ms <= self._now_ms:
            member.answered(request, reply, self._now_ms)

    async def _ask(self, request: Request, check: Callable[[Broker, Reply], None]) -> Reply:
        self.checker.sends(request)
        try:
            return await self._client.ask(
                self._client.machine(),
                lambda broker: broker.groups.service.ask(
                    request, timeout_ms=TIMEOUT_MS, creates=isinstance(request, Join | Commit)
                ),
                check,
            )
        except RaftlogError as error:
            self._checked(partial(self.checker.refused, request, error))
            raise

    async def _commit(self, commit: Commit) -> None:
        await self._ask(commit, lambda broker, reply: None)

    async def _read(self) -> None:
        """Read the state of the group linearizably, through any broker."""
        floor, generation, ends = dict(self.checker.floor), self.checker.generation, self.checker.ends

        def check(broker: Broker, reply: Reply) -> None:
            if ends == self.checker.ends:
                self._check_read(floor, generation, reply)

        try:
            await self._ask(ReadGroup(group=GROUP), check)
        except RaftlogError:
            return

    def _check_read(self, floor: dict[Target, Position], generation: int, reply: Reply) -> None:
        assert isinstance(reply, GroupView)
        found = {(topic, number): (one.generation, one.offset) for topic, number, one in reply.offsets}
        missed = {target: least for target, least in floor.items() if found.get(target, (-1, -1)) < least}
        if missed or reply.group.generation < generation:
            detail = f"generation {reply.group.generation} and {found}"
            self._cluster.violated(FRESH, f"{detail}; acknowledged were {generation} and {missed}")

    async def _use_others(self) -> None:
        """Commit offsets of groups without members, and delete these groups."""
        group = f"other {self._rng.randrange(OTHERS)}"
        commit = OffsetCommit(topic=TOPIC, topic_id="t", partition=0, offset=self._rng.randrange(1000))
        request: Request = Commit(group=group, offsets=(commit,), is_forced=True)
        if self._rng.random() < 0.5:
            request = DeleteGroup(group=group)
        elif self._rng.random() < 0.3:
            request = DeleteOffsets(group=group, targets=((TOPIC, 0),))
        with contextlib.suppress(RaftlogError):
            await self._ask(request, lambda broker, reply: None)

    # Faults of members.

    def _fault(self) -> None:
        kind = self._rng.choices(("pause", "crash", "leave", "join"), (3, 2, 1, 2))[0]
        living = [member for member in self.members if member.is_alive]
        member = self._rng.choice(living) if living else None
        self._cluster.trace.note(None, f"group: {kind} {member and member.name}")
        if kind == "join" or member is None:
            if len(living) < 2 * self._odds.members:
                self.members.append(self._new_member())
        elif kind == "pause":
            member.paused_until_ms = self._now_ms + int(1000 * self._drawn_s(self._odds.session_ms))
        elif kind == "leave":
            member.leave()
        else:
            member.is_alive = False
            if member.instance or self._rng.random() < 0.5:
                self.members.append(self._new_member(member))

    def _new_member(self, last: Member | None = None) -> Member:
        name, instance = identity(last, self._names, self._odds, self._rng)
        rng = random.Random(self._rng.getrandbits(64))
        return Member(name, instance, self._odds, rng, self._send, self.checker)

    # The end.

    async def converged(self, convergence: Convergence) -> None:
        """Check that after the faults the running members own all partitions, in one generation, within a
        bounded time (C7).
        """
        cluster, odds = self._cluster, self._odds
        for member in self.members:
            member.paused_until_ms = min(member.paused_until_ms, self._now_ms)
        deadline = cluster.loop.now + SETTLING_ROUNDS * (odds.session_ms + odds.rebalance_ms) / 1000
        while (problem := self._problem()) is not None:
            if cluster.loop.now > deadline:
                cluster.violated(SETTLES, problem)
                break
            await asyncio.sleep(0.1)
        self._is_over = True

    def _problem(self) -> str | None:
        living = [member for member in self.members if member.is_alive]
        targets = {(TOPIC, number) for number in range(self._cluster.odds.partitions)}
        try:
            self.checker.settled({member.name for member in living}, targets)
        except Broken as broken:
            return broken.detail
        generation = self.checker.group.generation
        others = {each.name: each.generation for each in living if each.generation != generation}
        return f"the generation is {generation}, not {others}" if others else None

    async def check(self) -> dict[str, int]:
        """Check the group at the end of a run. Returns how many groups expired."""
        self._check_replicas()
        return {} if self._idle is None else {EXPIRED: self._idle.expired}

    def _check_replicas(self) -> None:
        """Check that every replica has applied the committed groups and offsets (C9)."""
        if self._waiting:
            self._cluster.violated(KEPT, f"{len(self._waiting)} answers are of what no log shows")
        for machine in self._cluster.machines:
            broker, record = machine.broker, self._record
            if broker is None or record is None or machine.node not in record.membership.members:
                continue
            state, wanted = broker.groups.coordinators[self._partition].state, self.checker.state
            for what, found, due in (
                ("groups", state.groups, wanted.groups),
                ("offsets", state.offsets, wanted.offsets),
            ):
                if found != due:
                    self._cluster.violated(SAME, f"{machine.name} has {what} {found}; committed are {due}")
