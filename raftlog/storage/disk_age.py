"""The age of this disk and of its peers' disks, by which brokers detect an older copy of a disk.

An older copy of a data directory (a restored backup, or a virtual machine that was set back) has lost votes
and acknowledgements, and its content does not show the loss. So a disk has an age. The number rises when a
run of its broker has named the disk to its first peer, and then at intervals. With the age the disk stores
the random number of the run that raised it. Runs that no peer can have heard do not raise the age: failed
starts, however many, do not age the disk, and none of them takes a place among the runs that prove its past.

Brokers send each other the ages and runs of their disks and remember them. A disk is an older copy in four
cases: its age has fallen; another run has counted an age that is already known; its runs do not reach back to
the known age; or another disk had replaced it.

``<data>/disk_age``, kept twice (``twin_file``), holds the id and the age of this disk, the newest disks of
each peer, and whether a peer has found that this disk is an older copy.

Decides: which disk is an older copy. Leaves to others: what brokers send each other
(``raftlog.node.peer_disks``), and the treatment of an older copy (``raftlog.hosting.opener``).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.types import NodeId

_log = logging.getLogger("raftlog.storage")

AGE_FILE: Final = "disk_age"
DISKS_MAX: Final = 64  # of one peer: the disk in use, and disks that it used before
RUNS_MAX: Final = 1024  # of one disk, the newest; a peer that knows only an older age refuses the disk


class Run(msgspec.Struct, frozen=True, array_like=True):
    """A process of a broker: a random number, and the first age that the process has counted."""

    first_age: int
    number: int


class Disk(msgspec.Struct, frozen=True, array_like=True):
    """The id and age of a disk at one moment, with the runs that have counted its age, newest first."""

    disk_id: str
    age: int
    runs: tuple[Run, ...] = ()

    def continues(self, known: Disk) -> bool:
        """Whether this disk is ``known`` at an equal or later age. Only the newest run of ``known`` counts.

        Runs that no longer reach back to the known age prove nothing: the result is False, since an older
        copy that was started often enough has such runs, too.
        """
        if self.disk_id != known.disk_id or self.age < known.age:
            return False
        counted = next((run.number for run in self.runs if run.first_age <= known.age), None)
        if counted is None:
            return len(self.runs) < RUNS_MAX
        return counted in (run.number for run in known.runs[:1])


class DiskRecord(msgspec.Struct, frozen=True):
    """The content of the file ``disk_age``."""

    disk: Disk
    peers: Mapping[NodeId, tuple[Disk, ...]] = {}  # the disks of each peer, the disk in use first
    is_older_copy: bool = False


class DiskAge:
    """The age of one data directory's disk. Methods that raise ``OSError`` wait for the disk."""

    def __init__(
        self, filesystem: Filesystem, data_directory: str, record: DiskRecord, run_number: int
    ) -> None:
        self._run_number = run_number
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._peers = dict(record.peers)
        self.is_named = False  # set once a peer may have heard of this run
        self.disk = record.disk  # as stored
        self.is_older_copy = record.is_older_copy  # its broker must begin again before it takes part

    @classmethod
    def open(cls, filesystem: Filesystem, data_directory: str, disk_id: str, rng: random.Random) -> DiskAge:
        """Read the file; ``rng`` draws the number of this run, which has not raised the age yet.

        Raises ``OSError``.
        """
        try:
            record = twin_file.load(filesystem, data_directory, AGE_FILE, DiskRecord)
        except LogCorrupt as error:
            _log.error("peers may treat this disk as an older copy: %s", error)
            record = None
        if record is None:
            record = DiskRecord(Disk(disk_id, 0))
        elif record.disk.disk_id != disk_id and not record.is_older_copy:
            record = DiskRecord(Disk(disk_id, 0), record.peers)
        return cls(filesystem, data_directory, record, rng.getrandbits(62))

    def record(self) -> DiskRecord:
        """A record of the present age and of the peers' present disks, for ``keep``."""
        return DiskRecord(self.disk, dict(self._peers))

    def next_record(self) -> DiskRecord:
        """A record with the next age; until a peer may have heard of this run, a record with the
        present age.
        """
        if not self.is_named:
            return self.record()
        age, runs = self.disk.age + 1, self.disk.runs
        if not runs or runs[0].number != self._run_number:  # the first durable age of this run
            runs = (Run(age, self._run_number), *runs[: RUNS_MAX - 1])
        return DiskRecord(Disk(self.disk.disk_id, age, runs), dict(self._peers))

    def keep(self, record: DiskRecord) -> None:
        """Make a record durable, and then use its age. Raises ``OSError``."""
        twin_file.keep(self._filesystem, self._data_directory, AGE_FILE, record)
        self.disk = record.disk

    def mark_older_copy(self) -> None:
        """Record for the next start that this disk is an older copy. Raises ``OSError``."""
        record = DiskRecord(self.disk, dict(self._peers), is_older_copy=True)
        twin_file.keep(self._filesystem, self._data_directory, AGE_FILE, record)
        self.is_older_copy = True

    def begin_again(self, disk_id: str) -> None:
        """Give this disk a new id; all of its replicas then rejoin their groups. Raises ``OSError``."""
        self.keep(DiskRecord(Disk(disk_id, 0), dict(self._peers)))
        self.is_older_copy = self.is_named = False

    def known_of(self, peer: NodeId) -> Disk | None:
        """The newest disk that a peer has named; None if the peer has named no disk."""
        disks = self._peers.get(peer)
        return disks[0] if disks else None

    def note(self, peer: NodeId, disk: Disk) -> bool:
        """Note the disk that a peer names; return False, and note nothing, if the disk is an older copy."""
        disks = self._peers.get(peer, ())
        if disks and disk.disk_id == disks[0].disk_id:
            if not disk.continues(disks[0]):
                return False
            disks = disks[1:]
        elif any(disk.disk_id == earlier.disk_id for earlier in disks):
            return False
        self._peers[peer] = (Disk(disk.disk_id, disk.age, disk.runs[:1]), *disks[: DISKS_MAX - 1])
        return True
