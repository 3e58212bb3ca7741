"""Runs one case: fills the disks, stops the brokers, damages files, starts the brokers, writes and reads;
then checks.

No acknowledged value may be missing or changed, and no consumer may read a changed byte. At the end all
replicas work, are intact and have equal bytes, and files have been repaired by brokers only.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final

from broker.broker import Broker
from partitions.values import FetchRequest, FetchResult
from raftlog.core.membership import Membership
from raftlog.errors import CorruptBatch, OffsetOutOfRange, RaftlogError
from raftlog.records.batch import check_batch, split_batches
from raftlog.records.reader import read_records
from raftlog.repair.scrubbing import scrub_ranges
from raftlog.repair.verify import examine
from raftlog.storage import twin_file
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.segment_content import content_of
from raftlog.types import METADATA_GROUP, NodeId, Offset
from verification.corruption.cluster import (
    COMPACTED_FROM,
    TARGET,
    Filled,
    Image,
    RottingCluster,
    fill,
    is_cut,
)
from verification.corruption.compacted import newest_of, without_superseded
from verification.corruption.damage import CATEGORIES, KEPT_TWICE, KINDS, Damage, Verdict, do_damage
from verification.corruption.harmless import Disk, shown_harmless
from verification.simulator.clients import TOPIC
from verification.simulator.machine import DATA_DIRECTORY, Machine

FILLINGS: Final = 12
COMPACTED: Final = 0.2  # share of cases with a compacted topic
TRIES: Final = 40  # attempts to find a damage that changes a file
BATCHES_AFTER: Final = 4
PATIENCE_S: Final = 60.0
AWAY: Final = 0.2  # share of victims that are down while the others delete the beginnings of their logs
IN_USE: Final = 0.25  # share of cases that also damage the active segment of a running broker
END: Final = 1 << 60


@dataclass(slots=True)
class Outcome:
    """Result of a case: the damages, and the checks that failed."""

    seed: int
    verdicts: tuple[Verdict, ...]
    noticed: int = 0  # brokers that have repaired a file, or found the damage by scrubbing
    repaired: int = 0
    lost: int = 0
    served_damaged: int = 0
    problems: list[str] = field(default_factory=list)
    simulated_s: float = 0.0

    @property
    def is_good(self) -> bool:
        """True if all checks passed, and no damage was missed."""
        is_missed = any(verdict.is_missed for verdict in self.verdicts)
        return not (self.lost or self.served_damaged or self.problems or is_missed)

    @property
    def is_detected(self) -> bool:
        """True if every damage was detected."""
        return all(verdict.is_detected for verdict in self.verdicts)


@lru_cache(maxsize=2 * FILLINGS)
def _filled(number: int) -> Filled:
    return fill(number)


def run_case(seed: int, *, all_replicas: bool = False, damages: bool = True) -> Outcome:
    """Run the case of a seed: damage one replica, or all replicas in different places, and check the result.

    With ``damages`` false, no file is damaged, and the brokers must detect no damage.
    """
    rng = random.Random(f"case {seed} {all_replicas}")
    number = rng.randrange(FILLINGS)
    if all_replicas and is_cut(number):
        number -= 1  # files beside a truncated log may be incomplete on all replicas
    if random.Random(f"compacted {seed} {all_replicas}").random() < COMPACTED:
        number += COMPACTED_FROM
    filled = _filled(number)
    case = _Case(seed, filled, rng, all_replicas=all_replicas)
    cluster = RottingCluster(f"case {seed} {all_replicas}", filled.images, case.work)
    cluster.keys = case.keys
    struck: list[_Struck] = []
    victims = _victims(cluster, filled, rng, all_replicas=all_replicas) if damages else []
    for machine, older in victims:
        before, known = machine.disk.image(), _findings(machine)
        damage = _damaged(machine, older, rng, case)
        is_found = bool(_findings(machine) - known)
        struck.append(_Struck(machine, damage, before, machine.disk.image(), older, is_found))
        case.victim = machine
    problems = cluster.go() + case.problems
    return Outcome(
        seed,
        (*(one.verdict(case.noticed) for one in struck), *case.in_use()),
        noticed=len(case.noticed),
        repaired=case.repaired,
        lost=case.lost,
        served_damaged=case.served_damaged,
        problems=problems,
        simulated_s=cluster.loop.now,
    )


@dataclass(frozen=True, slots=True)
class _Struck:
    """A machine whose disk was damaged. ``is_found`` is true if a verification of the disk finds
    the damage.
    """

    machine: Machine
    damage: Damage
    before: Image
    after: Image
    older: Image
    is_found: bool

    def verdict(self, noticed: set[NodeId]) -> Verdict:
        """Return the result of the damage. ``noticed`` tells whether the broker has repaired a file."""
        if self.is_found or self.machine.node in noticed:
            return Verdict(self.damage, True, None)
        disk = Disk(self.before, self.after, self.machine.disk.image(), self.older)
        return Verdict(self.damage, False, shown_harmless(disk))


def _victims(
    cluster: RottingCluster, filled: Filled, rng: random.Random, *, all_replicas: bool
) -> list[tuple[Machine, dict[str, bytes]]]:
    machines = cluster.machines if all_replicas else [rng.choice(cluster.machines)]
    return [(machine, filled.older[machine.node]) for machine in machines]


def _damaged(machine: Machine, older: dict[str, bytes], rng: random.Random, case: _Case) -> Damage:
    """Damage a file so that every log entry stays intact on at least one replica."""
    before = machine.disk.image()
    for _ in range(TRIES):
        damage = do_damage(machine.disk, older, rng, rng.choice(CATEGORIES), rng.choice(KINDS))
        if damage is None:
            continue
        lost = _lost_places(machine)
        if not case.overlaps(lost):
            case.lost_places += lost
            return damage
        for path in {*machine.disk.image(), *before}:
            machine.disk.overwrite(path, before.get(path))
    raise RuntimeError("no attempt at damage changed a file")


Place = tuple[str, int, int]


def _directories(machine: Machine) -> list[str]:
    return sorted({path.rpartition("/")[0] for path in machine.disk.image() if "/Partition-" in path})


def _lost_places(machine: Machine) -> list[Place]:
    """Return the entries of each log that are no longer intact on this machine.

    Damage above the durable end cannot be distinguished from a torn tail, and a power loss may have lowered
    the durable end far. So at most one replica may have lost such an entry, as if it had never been synced.
    """
    found: list[Place] = []
    for directory in _directories(machine):
        seen = examine(machine.disk, directory)
        found += [(directory, hole.first, END if hole.last is None else hole.last) for hole in seen.holes]
        if seen.torn:
            found.append((directory, seen.state.durable_index + 1, END))
    return found


def _findings(machine: Machine) -> set[str]:
    """Return the damage that a verification of the disk finds."""
    found = set(_damaged_twins(machine))
    for directory in _directories(machine):
        seen = examine(machine.disk, directory)
        found.update(map(str, (*seen.damages, *seen.torn, *seen.stale, *seen.flipped)))
        found.update(f"{directory} {doubt}" for doubt in (seen.doubt, *seen.holes) if doubt)
    return found


def _damaged_twins(machine: Machine) -> list[str]:
    return [path for name in KEPT_TWICE for path in twin_file.damaged(machine.disk, DATA_DIRECTORY, name)]


class _Case:
    def __init__(self, seed: int, filled: Filled, rng: random.Random, *, all_replicas: bool) -> None:
        self.lost_places: list[Place] = []
        self.problems: list[str] = []
        self.repaired = 0
        self.noticed: set[NodeId] = set()
        self._in_use: tuple[NodeId, Damage] | None = None
        self.served_damaged = 0
        self.lost = 0
        self._rng = rng
        self._acknowledged = dict(filled.acknowledged)
        self._start = filled.start
        self.keys = dict(filled.keys) or None
        self._is_cutting = False
        is_away = random.Random(f"away {seed}").random() < AWAY
        self._cuts_meanwhile = is_away and not all_replicas and self.keys is None
        self._use_rng = random.Random(f"in use {seed} {all_replicas}")
        self.victim: Machine | None = None

    def overlaps(self, places: list[Place]) -> bool:
        """Return whether some log entry would then be damaged on every replica."""
        return any(
            mine[0] == other[0] and mine[1] <= other[2] and other[1] <= mine[2]
            for mine in places
            for other in self.lost_places
        )

    async def work(self, cluster: RottingCluster) -> None:
        """Carry out all steps of the case."""
        reading = asyncio.get_running_loop().create_task(self._read_on_and_on(cluster))
        if self._cuts_meanwhile:
            await self._cut_without(self.victim, cluster)
        for machine in cluster.machines:
            if not machine.is_up:
                machine.start()
        for _ in range(BATCHES_AFTER):
            await cluster.produce(self._acknowledged, self._rng)
        await self._until_well(cluster)
        if self.victim is not None and self._use_rng.random() < IN_USE:
            self._damage_in_use(self._use_rng.choice(cluster.machines))
        for machine in cluster.machines:
            if machine.broker is not None:
                await machine.call(lambda broker: broker.scrubber.cycle())
        await self._until_well(cluster)
        reading.cancel()
        await self._read_all(cluster)
        self._look_at_the_end(cluster)

    def _damage_in_use(self, machine: Machine) -> None:
        """Flip one bit in the active segment of a running broker, while all replicas are equal and intact."""
        assert machine.broker is not None
        log = machine.broker.manager.replicas[TOPIC, 0].group.log
        assert isinstance(log, SegmentedLog)
        active = scrub_ranges(log)[-1]
        if active.size:
            position = self._use_rng.randrange(active.size)
            machine.disk.flip_bit(active.path, position, self._use_rng.randrange(8))
            where = f"byte {position} of {machine.name}, in use"
            self._in_use = machine.node, Damage("active segment", "bit flip", active.path, where)

    def in_use(self) -> tuple[Verdict, ...]:
        """Run the case with damage to a running broker, which the broker must detect; return the result."""
        if self._in_use is None:
            return ()
        node, damage = self._in_use
        return (Verdict(damage, node in self.noticed, None),)

    async def _cut_without(self, victim: Machine | None, cluster: RottingCluster) -> None:
        """Start all brokers but the victim, produce records, and delete the beginnings of the logs."""
        for machine in cluster.machines:
            if machine is not victim:
                machine.start()
        await cluster.produce(self._acknowledged, self._rng)
        self._is_cutting = True
        self._start = await cluster.cut(self._acknowledged)
        self._is_cutting = False

    async def _read_on_and_on(self, cluster: RottingCluster) -> None:
        while True:
            await self._read(cluster)
            await asyncio.sleep(0.5)

    async def _read_all(self, cluster: RottingCluster) -> None:
        found = await self._read(cluster)
        missing = [offset for offset in self._acknowledged if offset not in found]
        missing = without_superseded(missing, self.keys or {})
        self.lost += len(missing)
        if missing:
            self.problems.append(f"acknowledged but missing: {missing[:5]}")

    async def _read(self, cluster: RottingCluster) -> dict[int, bytes]:
        """Read all records through any broker, in the form of batches that a consumer receives."""
        found: dict[int, bytes] = {}
        position = self._start
        while True:
            request = FetchRequest(position=Offset(position), bytes_max=2048, wait_ms=0)
            machine = self._rng.choice(cluster.machines)
            try:
                result = await machine.call(partial(_fetch, request=request))
            except OffsetOutOfRange as error:
                if self._is_cutting or position < self._start:
                    return found
                self.problems.append(f"a position became invalid: {error}")
                return found
            except RaftlogError:
                await asyncio.sleep(0.05)
                continue
            self._check_served(bytes(result.data), found)
            if result.next_offset == position:
                return found
            position = result.next_offset

    def _check_served(self, data: bytes, found: dict[int, bytes]) -> None:
        try:
            for batch in split_batches(data):
                check_batch(batch)
                if batch.header.is_control:
                    continue
                for record in read_records(batch):
                    value = found[record.offset] = record.value or b""
                    if self._acknowledged.get(record.offset, value) != value:
                        self._served(f"offset {record.offset} has another value")
        except CorruptBatch as error:
            self._served(str(error))

    def _served(self, what: str) -> None:
        self.served_damaged += 1
        self.problems.append(f"a consumer got damaged bytes: {what}")

    # Checks at the end.

    async def _until_well(self, cluster: RottingCluster) -> None:
        deadline = cluster.loop.now + PATIENCE_S
        problems = self._problems(cluster)
        while problems and cluster.loop.now < deadline:
            await asyncio.sleep(0.25)
            problems = self._problems(cluster)
        self.problems += problems

    def _problems(self, cluster: RottingCluster) -> list[str]:
        found = []
        ends = Counter[tuple[int, int]]()
        for machine in cluster.machines:
            broker = machine.broker
            if broker is None:
                found.append(f"{machine.name} does not run")
                continue
            found += [f"{machine.name}: {failure}" for failure in broker.manager.failures.values()]
            if reason := broker.supervisor.reason_of(METADATA_GROUP):
                found.append(f"{machine.name}: {reason}")
            replica = broker.manager.replicas.get((TOPIC, 0))
            if replica is None:
                found.append(f"{machine.name} has no replica")
            else:
                group = replica.group
                ends[group.commit_index, group.last_index] += 1
        if len(ends) != 1:
            found.append(f"replicas differ: {dict(ends)}")
        return found

    def _look_at_the_end(self, cluster: RottingCluster) -> None:
        logs: dict[str, set[bytes]] = {}
        for machine in cluster.machines:
            if machine.broker is not None:
                repaired = machine.broker.repairer.counts.replicas_repaired
                self.repaired += repaired
                if repaired or machine.broker.scrubber.counts.damages_found:
                    self.noticed.add(machine.node)
            self.problems += [
                f"{machine.name}: {path} is damaged at the end" for path in _damaged_twins(machine)
            ]
            for directory in _directories(machine):
                seen = examine(machine.disk, directory)
                if not seen.is_clean:
                    what = [f"{damage.path} {damage.reason}" for damage in seen.damages]
                    self.problems.append(f"{machine.name}: {what} {seen.doubt} {seen.holes} at the end")
                if seen.state.log_start > self._start:
                    self.problems.append(
                        f"{directory} begins at {seen.state.log_start}, not at {self._start}"
                    )
                log = _log_of(machine, directory)
                is_compacted = self.keys is not None and f"/{TOPIC}-" in directory
                found = logs.setdefault(directory.removeprefix(DATA_DIRECTORY), set())
                found.add(newest_of(log) if is_compacted else log)
        self._compare_states(cluster)
        for name, found in logs.items():  # some logs may begin later than others
            if not all(max(found, key=len).endswith(log) for log in found):
                self.problems.append(f"the logs of {name} differ")

    def _compare_states(self, cluster: RottingCluster) -> None:
        """Check that replicas with equal applied indexes have equal states and memberships."""
        states: dict[tuple[int, int], set[bytes]] = {}
        members: dict[tuple[int, int], set[Membership]] = {}
        for machine in cluster.machines:
            for number, group in ({} if machine.broker is None else machine.broker.host.groups).items():
                applied = group._applier
                if self.keys is None or number == METADATA_GROUP:  # gap batches lack some stamps
                    at = number, applied.applied_index
                    states.setdefault(at, set()).add(applied._machine.snapshot())
                members.setdefault((number, group.last_index), set()).add(group.membership)
        self.problems += [
            f"group {place[0]}: states differ" for place, found in states.items() if len(found) > 1
        ]
        self.problems += [
            f"group {place[0]}: members differ" for place, found in members.items() if len(found) > 1
        ]


async def _fetch(broker: Broker, request: FetchRequest) -> FetchResult:
    return await broker.gateway.fetch(TARGET, request)


def _log_of(machine: Machine, directory: str) -> bytes:
    """Return the bytes of all segments of a log, without the zeros that follow the batches of a file."""
    files = machine.disk.stored_in(directory, durable=False)
    return b"".join(content_of(bytes(file.seen)) for name, file in files.items() if name.endswith(".log"))
