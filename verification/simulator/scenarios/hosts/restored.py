"""Runs a cluster whose brokers all start from copies, which were made at one moment or at different moments.

Only copies of stopped brokers fit together. For other copies decision 37 has two promises. A broker that
knows a newer state of a disk refuses its copy, and ``raftlog verify`` finds logs of one partition that
contradict each other.

Decides: when each broker is copied, which promises hold for the copies (``Fit``), and whether they are kept
(I43, I44). The checkers of the earlier run cannot be used, because the restore has lost records of its
history.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Final, cast

from broker.broker import Broker
from partitions.values import QUORUM
from raftlog.errors import RaftlogError
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.repair.copies import difference, misfit
from raftlog.repair.service import voters_in_files
from raftlog.repair.verify import VerifyReport, examine
from raftlog.storage import twin_file
from raftlog.storage.disk_age import AGE_FILE, Disk, DiskRecord
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId, NodeId, TopicPartition
from verification.simulator.clients import TIMEOUT_MS, TOPIC, Client
from verification.simulator.event_loop import Process
from verification.simulator.log_view import Entry, LogView
from verification.simulator.lost_files import DATA, NOBODYS
from verification.simulator.machine import Machine
from verification.simulator.scenarios.hosts.odds import STOPPED, HostOdds
from verification.simulator.simulated_cluster import SimulatedCluster

if TYPE_CHECKING:
    from raftlog.storage.segmented_log import SegmentedLog

SAME: Final = (
    "I44 brokers on copies serve one record at each offset, and keep those from before the first copy"
)
REFUSED: Final = "I43 a copy begins again if another broker knows a newer state of the disk, and only then"
NAMED: Final = "I44 verify names logs that are not one log, and no others"
CONTRADICTIONS: Final = "restores with contradictions, as documented"
SERVED_S: Final = 12.0  # as long as the brokers get records
PAUSE_S: Final = 0.2
LEADS_ODDS: Final = 0.7
STARTS_S: Final = (0.0, 0.0, 3.0)  # before each start: those of older copies may have elected a leader
LOOK_S: Final = 0.1
TIME_S: Final = 120.0

Files = Mapping[str, bytes]


class Fit(enum.Enum):
    """The promises of brokers about a set of copies of disks."""

    ONE_MOMENT = enum.auto()  # of stopped brokers: the cluster goes on
    RECOGNISED = enum.auto()  # in each majority of the voters some copy knows another one as older
    UNKNOWN = enum.auto()  # nothing but that verify finds what has become of it


@dataclass(slots=True)
class Copies:
    """Copies of all brokers of a run, in the order in which they were made."""

    cluster: SimulatedCluster
    odds: HostOdds
    move_leader: Callable[[random.Random], None]
    files: dict[NodeId, Files] = field(default_factory=dict)
    early: dict[GroupId, tuple[Entry, ...]] = field(default_factory=dict)  # committed before the first one
    voters: dict[GroupId, frozenset[NodeId]] = field(default_factory=dict)  # at that time

    async def make_while_running(self) -> None:
        """Copy one broker after another during the faults, unless all brokers are stopped before they are
        copied.
        """
        rng, odds = self.cluster.rng("copies of all"), self.cluster.odds
        if self.odds.restores == STOPPED:
            return
        await asyncio.sleep(rng.uniform(0.2, 0.6) * odds.faults_s)
        while left := self._left():
            if rng.random() < LEADS_ODDS:
                self.move_leader(rng)  # the next copy may show a term that those before do not
            await asyncio.sleep(rng.uniform(0.5, 1.5) * self.odds.copy_s)
            running = [machine for machine in left if machine.broker is not None]
            if running:
                self._copy(rng.choice(running))

    def make_the_rest(self) -> None:
        """Kill all brokers at the end of the run, and copy the brokers that have no copy yet."""
        for machine in self.cluster.members:
            machine.kill()
        for machine in self._left():
            self._copy(machine)

    def _left(self) -> list[Machine]:
        return [machine for machine in self.cluster.members if machine.node not in self.files]

    def _copy(self, machine: Machine) -> None:
        if not self.files:
            groups = self.cluster.checker.groups
            self.early = {group_id: tuple(record.committed) for group_id, record in groups.items()}
            self.voters = {group_id: record.membership.all_voters for group_id, record in groups.items()}
        self.files[machine.node] = machine.disk.image()

    @property
    def groups(self) -> set[GroupId]:
        """The groups that existed before the first copy was made, and whose voters have not changed since."""
        records = self.cluster.checker.groups
        return {each for each, voters in self.voters.items() if records[each].membership.all_voters == voters}

    def fit_of(self, group_id: GroupId) -> Fit:
        """Return which promises hold for the copied logs of a group."""
        if self.odds.restores == STOPPED:
            return Fit.ONE_MOMENT
        voters = sorted(self.voters.get(group_id, ()))
        majorities = combinations(voters, len(voters) // 2 + 1)
        is_known = group_id in self.groups and all(map(self._is_mixed, majorities))
        return Fit.RECOGNISED if is_known and voters else Fit.UNKNOWN

    def _is_mixed(self, nodes: Iterable[NodeId]) -> bool:
        return any(self.knows(one, other) for one, other in permutations(nodes, 2))

    def knows(self, node: NodeId, other: NodeId) -> bool:
        """Return whether the copy of one broker shows that the copy of another broker is older than
        its disk.
        """
        mine, theirs = (_ages(self.files.get(each, {})) for each in (node, other))
        if mine is None or theirs is None:
            return False
        newest, *before = mine.peers.get(other, ()) or [Disk("", 0)]
        is_replaced = any(disk.disk_id == theirs.disk.disk_id for disk in before)
        return is_replaced or (newest.disk_id == theirs.disk.disk_id and newest.age > theirs.disk.age)


class RestoredCluster(SimulatedCluster):
    """The brokers of the run ``before``, started from their copies."""

    def __init__(self, before: SimulatedCluster, copies: Copies) -> None:
        odds = replace(before.odds, timed=(), faults_s=0.0)
        super().__init__(before.seed, odds, keeps_lines=bool(before.trace.lines))
        self._copies = copies
        self.fits = {group_id: copies.fit_of(group_id) for group_id in before.checker.groups}
        self._groups = {
            replica.directory: group_id
            for group_id, record in before.checker.groups.items()
            for replica in record.replicas.values()
        }
        self._begins_s = before.loop.now
        self._began_again: set[NodeId] = set()
        self._is_one_moment = copies.odds.restores == STOPPED
        self._served = {
            (group_id, entry.base): entry for group_id, entries in copies.early.items() for entry in entries
        }
        self._views: dict[tuple[NodeId, str], LogView] = {}
        self.contradictions: list[str] = []
        self.is_healed = self.network.is_calm = True
        for original in before.members:
            if original.node in copies.files:
                self._take_over(original, copies.files[original.node])
        self.machines = [machine for machine in self.machines if machine.node in copies.files]

    def _take_over(self, original: Machine, files: Files) -> None:
        known = {machine.node: machine for machine in self.machines}
        machine = known.get(original.node) or self.add_machine(original.node)
        machine.address, machine.file, machine.rate = original.address, original.file, original.rate
        machine.incarnation = original.incarnation  # no run draws a number that one before has drawn
        machine.disk.load(dict(files))
        machine.is_kept_off = True  # until its turn comes

    # The checkers of other runs see a log from its first entry on: they look at nothing here.

    def stepped(self, process: Process) -> None: ...

    def made(self, machine: Machine, broker: Broker) -> None: ...

    def died(self, machine: Machine) -> None: ...

    def lost_power(self, machine: Machine) -> None: ...

    def files_removed(self, machine: Machine, path: str) -> None: ...

    def begins_again(self, machine: Machine) -> None:
        self._began_again.add(machine.node)

    def start_again(self) -> None:
        for machine in self.machines:
            if not machine.is_up and not machine.is_kept_off:
                machine.start()

    def check(self) -> None:
        """Run the cluster for a while, and check that the promises about the copies are kept."""
        self._check_copies()
        try:
            self.loop.run(self._live(), self._begins_s + TIME_S)
        except (TimeoutError, RuntimeError) as error:
            self.violated("L1 the run ends", repr(error))
        finally:
            self.loop.close()
        self._check_logs()

    async def _live(self) -> None:
        await asyncio.sleep(self._begins_s)
        rng = self.rng("restored")
        looking = asyncio.get_running_loop().create_task(self._look_on())
        order = {node: place for place, node in enumerate(self._copies.files)}
        for machine in sorted(self.machines, key=lambda each: order[each.node]):
            await asyncio.sleep(rng.choice(STARTS_S))
            machine.start()
        await asyncio.gather(*map(self._produce, self.machines))
        looking.cancel()
        self._look()
        self._check_refused()
        for machine in self.machines:
            machine.is_kept_off = True
            machine.kill()

    async def _produce(self, machine: Machine) -> None:
        """Produce other records at each broker: two leaders of one term would give them equal offsets."""
        client, number = Client(self, f"restored at {machine.name}"), 0
        stored: dict[TopicPartition, int] = dict.fromkeys(self.checked, -1)
        end_s = self.loop.now + SERVED_S
        while self.loop.now < end_s:
            number += 1
            target = self.checked[number % len(self.checked)]
            with contextlib.suppress(RaftlogError):
                stored[target] = await self._append(client, machine, target, f"{client.name} {number}")
            await asyncio.sleep(PAUSE_S)
        if self._is_one_moment and min(stored.values()) < 0:
            self.violated(
                "L2 a healed cluster works", f"{machine.name} accepts no record for each of {stored}"
            )

    async def _append(self, client: Client, machine: Machine, target: TopicPartition, value: str) -> int:
        data = build_batch([Record(value=value.encode())], codec=Codec.NONE, timestamp_ms=0)
        receipt = await client.ask(
            machine,
            lambda broker: broker.gateway.append(target, data, acks=QUORUM, timeout_ms=TIMEOUT_MS),
        )
        return receipt.base_offset

    # The judge.

    async def _look_on(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        for machine in self.machines:
            groups = {} if machine.broker is None else machine.broker.host.groups
            for group_id, group in groups.items():
                if group.stopped is None:
                    directory = cast("SegmentedLog", group.log).directory
                    self._look_at(machine, group_id, directory, group.commit_index)

    def _look_at(self, machine: Machine, group_id: GroupId, directory: str, commit_index: int) -> None:
        """Check that a replica's committed entries equal the entries that other replicas have served."""
        view = self._views.setdefault(
            (machine.node, directory), LogView(machine.disk, directory, durable=False)
        )
        view.refresh()
        for entry in view.entries:
            if entry.last > commit_index:
                continue  # another leader may have replaced it before it was copied
            known = self._served.setdefault((group_id, entry.base), entry)
            if known != entry:
                self._contradicted(group_id, f"{machine.name} serves {entry} in place of {known}")

    def _contradicted(self, group_id: GroupId, what: str) -> None:
        self.contradictions.append(what)
        fit = self.fits.get(group_id, Fit.UNKNOWN)
        if fit is not Fit.UNKNOWN:
            self.violated(SAME, f"group {group_id}, {fit.name}: {what}")

    def _check_refused(self) -> None:
        known = {
            copy.node for copy in self.machines if any(self._tells(each, copy) for each in self.machines)
        }
        if lacking := known - self._began_again:
            self.violated(REFUSED, f"{sorted(lacking)} go on, {sorted(self._began_again)} have begun again")
        if self._is_one_moment and self._began_again:
            self.violated(REFUSED, f"{sorted(self._began_again)} have begun again on copies of one moment")

    def _tells(self, machine: Machine, copy: Machine) -> bool:
        """Return whether a broker reports that a copy is older, and dials the address at which the copy
        listens.
        """
        is_dialled = machine.dials(copy.node) == copy.address
        return machine is not copy and is_dialled and self._copies.knows(machine.node, copy.node)

    def _check_copies(self) -> None:
        """Check the reports of ``raftlog verify`` on all copies before the brokers start.

        They must name no contradiction: the copies come from one run, which has one entry for each index and
        term.
        """
        disks, logs = _side_by_side(self._copies.files)
        for reports in logs.values():
            named = [voters for seen in reports.values() if (voters := voters_in_files(disks, seen))]
            problems = [difference(disks, reports)]
            problems += [misfit(reports, named)] if self._is_one_moment else []
            for problem in problems:
                if problem is not None:
                    self.violated(NAMED, f"before the start: {problem}")

    def _check_logs(self) -> None:
        """Check that ``raftlog verify`` names exactly the logs whose entries of one index and term differ."""
        disks, logs = _side_by_side({machine.node: machine.disk.image() for machine in self.machines})
        for path, reports in logs.items():
            differing = list(_differing(disks, path, reports))
            named = difference(disks, reports)
            if bool(differing) != bool(named):
                self.violated(NAMED, f"{path}: {named} is named, these are not the same: {differing[:3]}")
            if differing:
                self._contradicted(self._groups.get(path, NOBODYS), f"{path}: {differing[:3]}")


def restore_all(before: SimulatedCluster, copies: Copies) -> RestoredCluster:
    """Run the restored cluster: start all brokers from their copies, and check the promises."""
    restored = RestoredCluster(before, copies)
    restored.checked = [TopicPartition(TOPIC, number) for number in range(before.odds.partitions)]
    restored.check()
    return restored


def _ages(files: Files) -> DiskRecord | None:
    disk = FakeFilesystem()
    disk.load({path: data for path, data in files.items() if path.startswith(f"{DATA}/{AGE_FILE}")})
    return twin_file.load(disk, DATA, AGE_FILE, DiskRecord)


def _side_by_side(
    files: Mapping[NodeId, Files],
) -> tuple[FakeFilesystem, dict[str, dict[NodeId, VerifyReport]]]:
    """Put all copies in one filesystem, as an operator does. Returns it with the reports about each log, by
    path and broker.
    """
    disks = FakeFilesystem()
    logs: dict[str, dict[NodeId, VerifyReport]] = {}
    for node, each in files.items():
        disks.load({f"/{node}{path}": data for path, data in each.items()})
        folders = {
            path.rpartition("/")[0] for path in each if "/Partition-" in path and "/trash/" not in path
        }
        for folder in sorted(folders):
            logs.setdefault(folder, {})[node] = examine(disks, f"/{node}{folder}")
    return disks, {path: reports for path, reports in sorted(logs.items()) if len(reports) > 1}


def _differing(disks: FakeFilesystem, path: str, nodes: Mapping[NodeId, VerifyReport]) -> Iterator[str]:
    seen: dict[tuple[int, int], Entry] = {}
    for node in nodes:
        view = LogView(disks, f"/{node}{path}", durable=False)
        view.refresh()
        for entry in view.entries:
            known = seen.setdefault((entry.base, entry.term), entry)
            if known != entry:
                yield f"{entry} on broker {node} is {known} elsewhere"
