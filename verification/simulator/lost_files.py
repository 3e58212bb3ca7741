"""Lets machines start without some of their files: without a folder, the metadata log, or the whole disk.

Other machines start on an older copy of all files, or of one folder, as after a restored backup.

Decides: which machine loses which files, so that a majority of every group keeps its votes and
acknowledgements. Leaves to others: the times (``faults``), and the checks (``checker``).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from partitions.metadata.image import PartitionInfo
from raftlog.storage import twin_file
from raftlog.storage.disk_age import AGE_FILE, Disk, DiskRecord
from raftlog.storage.recovery import has_lived
from raftlog.storage.replica_progress import PROGRESS_FILE, Progress
from raftlog.storage.replica_registry import DISK_FILE, REPLICAS_FILE
from raftlog.storage.twin_file import ENDINGS
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId, NodeId
from verification.simulator.log_view import LogView, durable_vote
from verification.simulator.machine import Machine
from verification.simulator.records import GroupRecord, may_vote
from verification.simulator.simulated_cluster import SimulatedCluster

DATA: Final = "/data"
METADATA: Final = f"{DATA}/__cluster_metadata"
REGISTRY: Final = tuple(f"{DATA}/{name}{ending}" for name in (DISK_FILE, REPLICAS_FILE) for ending in ENDINGS)
OLDER_COPY: Final = "older copy"
KINDS: Final = (
    "replica",
    "replica",
    "metadata",
    "metadata",
    "registry",
    "all but the registry",
    "disk",
    OLDER_COPY,
    OLDER_COPY,
)
COPIES_MAX: Final = 3  # of each machine
OLDER_FOLDER_ODDS: Final = 0.7
NOBODYS: Final = GroupId(-1)

REPLICAS_MIN: Final = 3  # one of them may be lost

Later = Callable[[random.Random, float, float, Callable[[], None]], None]
"""A function that calls another function after a random time between two bounds, in seconds."""

_REPLICA: Final = re.compile(rf"({DATA}/[^/]+-[0-9a-f]{{32}}/Partition-\d+)/")


@dataclass(frozen=True, slots=True)
class _Copy:
    """All files of a disk at one moment, and the disk's age at that moment."""

    disk: Disk
    files: dict[str, bytes]


class LostFiles:
    """Losses of files. At most one machine at a time may lack votes or acknowledgements of its replicas."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._forgetful: Machine | None = None
        self._copies: dict[Machine, list[_Copy]] = {}

    def strike_without_the_newest(self, rng: random.Random, later: Later) -> None:
        """Stop a minority for a while. Then another machine loses files, and the remaining machines start
        without the minority.

        The remaining machines and the machine that loses files are a majority. If possible, the lost log has
        entries that none of the remaining machines holds.
        """
        machines = self._cluster.machines
        behind = rng.sample(machines, (len(machines) - 1) // 2)
        _keep_off(behind)

        def strike() -> None:
            rest = [machine for machine in machines if machine not in behind]
            forgetful = self.strike(rng, self._newest_logs(behind))
            back = behind
            if forgetful is not None:
                rest.remove(forgetful)
                _keep_off(rest)
                later(rng, 1.0, 4.0, lambda: _start(rest))
                back = [*behind, forgetful]
            later(rng, 0.0, 0.3, lambda: _start(back))

        later(rng, 0.2, 1.5, strike)

    def strike(self, rng: random.Random, aims: Sequence[tuple[Machine, str]] = ()) -> Machine | None:
        """Stop a machine and remove some of its files. Returns the machine, or None if no machine may lose
        files.

        ``aims`` are machines with a folder to remove: one of them is chosen, if its machine may lose files.
        """
        able = [machine for machine in self._cluster.machines if self.may_forget(machine)]
        aims = [aim for aim in aims if aim[0] in able]
        if not able:
            return None
        machine, aim = rng.choice(aims) if aims else (rng.choice(able), None)
        rng.choice((machine.kill, machine.lose_power))()
        machine.disk.crash_after_changes = machine.disk.dies_writing = machine.disk.dies_after = None
        copy = None if aim else self._drawn_copy(rng, machine)
        for path in [aim] if aim else [DATA] if copy else self._drawn(rng, machine):
            self._cluster.trace.note(machine.node, f"loses {path}")
            self._cluster.checker.files_lost(machine, path)
            FakeFilesystem.remove_tree(machine.disk, path)
            machine.disk.remove(path)
            machine.disk.sync_directory(path.rpartition("/")[0])
            if copy is None:
                self._put_older_folder(rng, machine, path)
        if copy is not None:
            self._put_copy(machine, copy.disk, copy.files)
        self._forgetful = machine
        return machine

    def restore(self, machine: Machine, disk: Disk, files: dict[str, bytes]) -> None:
        """Put an older copy of a disk in the place of the machine's disk; the machine must be off."""
        machine.kill()
        machine.disk.crash_after_changes = machine.disk.dies_writing = machine.disk.dies_after = None
        self._cluster.checker.files_lost(machine, DATA)
        FakeFilesystem.remove_tree(machine.disk, DATA)
        machine.disk.remove(DATA)
        self._put_copy(machine, disk, files)
        self._forgetful = machine

    def _put_copy(self, machine: Machine, disk: Disk, files: dict[str, bytes]) -> None:
        self._cluster.trace.note(machine.node, f"has an older copy, of age {disk.age}")
        machine.copied_disk = disk.disk_id
        machine.older_copies.clear()
        _load(machine, files)

    def _put_older_folder(self, rng: random.Random, machine: Machine, path: str) -> None:
        """Sometimes put an older copy in the place of a removed folder, if the disk has noted a newer state
        of this folder.
        """
        notes = twin_file.load(machine.disk, DATA, PROGRESS_FILE, dict[GroupId, Progress]) or {}
        groups = {
            lost.directory: record.group_id
            for record in self._records()
            if (lost := record.lost.get(machine.node)) is not None
        }
        found = []
        for copy in self._copies.get(machine, []):
            files = {name: data for name, data in copy.files.items() if name.startswith(f"{path}/")}
            folders = {name.rpartition("/")[0] for name in files}
            noted = [(folder, notes.get(groups.get(folder, NOBODYS))) for folder in folders]
            if any(note is not None and _is_behind(files, folder, note) for folder, note in noted):
                found.append(files)
        if found and rng.random() < OLDER_FOLDER_ODDS:
            self._cluster.trace.note(machine.node, f"has an older copy of {path}")
            _load(machine, rng.choice(found))

    def copy(self, rng: random.Random) -> None:
        """Copy all files of a machine whose broker runs, as a backup does."""
        able = [machine for machine in self._cluster.machines if machine.broker is not None]
        if able:
            machine = rng.choice(able)
            assert machine.broker is not None
            copies = self._copies.setdefault(machine, [])
            copies.append(_Copy(machine.broker.disks.age.disk, machine.disk.image()))
            del copies[:-COPIES_MAX]

    def _drawn_copy(self, rng: random.Random, machine: Machine) -> _Copy | None:
        """Draw an older copy whose age every other machine can tell from its own disk; None if
        there is none.
        """
        if rng.choice(KINDS) != OLDER_COPY:
            return None
        others = [other for other in self._cluster.machines if other is not machine]
        known = [known_of(machine, other) for other in others]
        copies = [
            copy
            for copy in self._copies.get(machine, [])
            if all(disk.disk_id == copy.disk.disk_id and disk.age > copy.disk.age + 1 for disk in known)
        ]
        return rng.choice(copies) if copies else None

    def _newest_logs(self, behind: Collection[Machine]) -> list[tuple[Machine, str]]:
        """Return logs with all committed entries.

        They are of groups in which the machines ``behind`` that lack entries would be a majority with one
        more machine.
        """
        found = []
        for record in self._records():
            held = {node: one.look(record, durable=True) for node, one in record.replicas.items()}
            whole = {node for node, count in held.items() if count >= len(record.committed)}
            lacking = {machine.node for machine in behind} - whole
            if not record.is_retired and all(
                2 * len(half & lacking) + 2 > len(half) for half in record.halves
            ):
                ahead = [record.replicas[node] for node in sorted(whole & record.membership.voters)]
                found += [(replica.machine, replica.directory) for replica in ahead]
        return found

    @property
    def forgetful(self) -> Machine | None:
        """The machine some of whose replicas have lost votes and have not rejoined; None if there is none."""
        if self._forgetful is not None and self._forgetful.is_removed:
            self._forgetful = None
        machine = self._forgetful
        if machine is None or machine.broker is None:
            return machine
        if not machine.broker.controller.registration.is_registered:
            return machine  # until then a new replica counts as one that it has lost
        if all(self._has_rejoined(machine, record) for record in self._records()):
            self._forgetful = None
        return self._forgetful

    def _drawn(self, rng: random.Random, machine: Machine) -> list[str]:
        replicas = sorted({found[1] for path in machine.disk.paths() if (found := _REPLICA.match(path))})
        match rng.choice(KINDS):
            case "replica" if replicas:
                return [rng.choice(replicas)]
            case "registry":
                return [*REGISTRY]
            case "disk":
                return [DATA]
            case "all but the registry":
                return [path for path in machine.disk.paths() if path not in REGISTRY]
            case _:
                return [METADATA]

    def may_forget(self, machine: Machine) -> bool:
        """True if every group in which the machine votes, or will get a replica, continues without the
        machine.

        False if topics have a single replica: a topic that is being created may be on this machine.
        """
        if (
            not machine.is_up
            or machine.is_removed
            or self.forgetful is not None
            or self._cluster.odds.replicas < REPLICAS_MIN
        ):
            return False
        for record in self._records():
            able = {
                node
                for node, replica in record.replicas.items()
                if node != machine.node and may_vote(replica.machine, replica.directory)
            }
            soon = record.membership.learners & {machine.node}
            halves = [half | soon for half in _halves(record) if machine.node in half | soon]
            if not record.is_retired and any(2 * len(half & able) <= len(half) for half in halves):
                return False
        return all(
            partition.group_id in self._cluster.checker.groups
            and min(len(partition.replicas), len(partition.target_replicas)) >= REPLICAS_MIN
            for partition in self._held(machine)
        )

    def _held(self, machine: Machine) -> Iterator[PartitionInfo]:
        """The partitions that the metadata of any broker places on the machine."""
        for other in self._cluster.machines:
            if other.broker is not None:
                for topic in other.broker.controller.image.topics.values():
                    yield from (one for one in topic.partitions if machine.node in one.all_replicas)

    def _has_rejoined(self, machine: Machine, record: GroupRecord) -> bool:
        if record.is_retired or machine.node not in record.lost:
            return True
        if machine.node not in record.membership.members:
            return True
        group = None if machine.broker is None else machine.broker.host.groups.get(record.group_id)
        return group is not None and group.stopped is None and not group.is_rejoining

    def _records(self) -> list[GroupRecord]:
        return list(self._cluster.checker.groups.values())


def _halves(record: GroupRecord) -> set[frozenset[NodeId]]:
    """Return the sets of voters of which a majority is needed, also in uncommitted memberships."""
    newest = [
        replica.seen.memberships[-1][1] for replica in record.replicas.values() if replica.seen.memberships
    ]
    return {*record.halves, *(half for membership in newest for half in membership.halves)}


def _load(machine: Machine, files: dict[str, bytes]) -> None:
    machine.disk.load(files)
    folders = {path.rpartition("/")[0] for path in files}
    machine.older_copies |= {folder for folder in folders if has_lived(machine.disk, folder)}


def _is_behind(files: dict[str, bytes], folder: str, note: Progress) -> bool:
    """Return whether the files of a folder alone show that its log is an older one."""
    disk = FakeFilesystem()
    disk.load(files)
    vote, view = durable_vote(disk, folder), LogView(disk, folder, durable=True)
    view.refresh()
    last = view.entries[-1].last if view.entries else vote.log_start - 1
    return has_lived(disk, folder) and (vote.term < note.term or last < note.entry.index)


def known_of(machine: Machine, other: Machine) -> Disk:
    """Return the newest state of a machine's disk that is noted on the disk of another machine."""
    record = twin_file.load(other.disk, DATA, AGE_FILE, DiskRecord)
    disks = () if record is None else record.peers.get(machine.node, ())
    return disks[0] if disks else Disk("", 0)


def _keep_off(machines: Iterable[Machine]) -> None:
    for machine in machines:
        machine.kill()
        machine.is_kept_off = True


def _start(machines: Iterable[Machine]) -> None:
    for machine in machines:
        if not machine.is_up:
            machine.start()
