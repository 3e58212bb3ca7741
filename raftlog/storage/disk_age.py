"""The age of this disk and of its peers' disks: what tells an older copy of a disk from the disk itself.

An older copy of a data directory, a backup that was restored or a virtual machine that was set back, has lost
votes and acknowledgements, and nothing in it shows that. So a disk has an age: a number that rises when a run
of its broker has named the disk to a first peer, and at intervals from then on, and with it the random number
of the run that counts it. Runs that no peer can have heard count nothing: however often a start fails, it
neither ages the disk nor takes a place among the runs that prove its past.

Brokers tell each other ages and runs of their disks and remember them. A disk is an older copy if its age has
fallen, if another run has counted an age that is known, if its runs do not reach back to that age, or if
another disk had replaced it.

``<data>/disk_age``, kept twice (``twin_file``), holds the id and the age of this disk, the newest disks of
each peer, and whether a peer has found that this disk is an older copy.

Decides: what is an older copy. Leaves to others: what brokers tell each other (``raftlog.node.peer_disks``),
and what becomes of an older copy (``raftlog.hosting.opener``).
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
DISKS_MAX: Final = 64  # of one peer: the one it uses, and those that it used before
RUNS_MAX: Final = 1024  # of one disk, the newest; a peer that knows an older age only refuses the disk


class Run(msgspec.Struct, frozen=True, array_like=True):
    """A process of a broker, by a random number, and the first age that it has counted."""

    first_age: int
    number: int


class Disk(msgspec.Struct, frozen=True, array_like=True):
    """One disk at some moment, with the runs that have counted its age, the newest first."""

    disk_id: str
    age: int
    runs: tuple[Run, ...] = ()

    def continues(self, known: Disk) -> bool:
        """Whether this disk is ``known`` at an equal or later age. Of ``known`` the newest run counts.

        Runs that no longer reach back to the known age prove nothing: False, since an older copy that
        was started often enough has such runs, too.
        """
        if self.disk_id != known.disk_id or self.age < known.age:
            return False
        counted = next((run.number for run in self.runs if run.first_age <= known.age), None)
        if counted is None:
            return len(self.runs) < RUNS_MAX
        return counted in (run.number for run in known.runs[:1])


class DiskRecord(msgspec.Struct, frozen=True):
    """The content of the file."""

    disk: Disk
    peers: Mapping[NodeId, tuple[Disk, ...]] = {}  # the disks of each, the one in use first
    is_older_copy: bool = False


class DiskAge:
    """One data directory's. What raises ``OSError`` waits for the disk."""

    def __init__(
        self, filesystem: Filesystem, data_directory: str, record: DiskRecord, run_number: int
    ) -> None:
        self._run_number = run_number
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._peers = dict(record.peers)
        self.is_named = False  # set once a peer may hear of this run
        self.disk = record.disk  # as it is on the disk
        self.is_older_copy = record.is_older_copy  # its broker must begin again before it takes part

    @classmethod
    def open(cls, filesystem: Filesystem, data_directory: str, disk_id: str, rng: random.Random) -> DiskAge:
        """Read the file; ``rng`` draws the number of the run, which is not counted. Raises ``OSError``."""
        try:
            record = twin_file.load(filesystem, data_directory, AGE_FILE, DiskRecord)
        except LogCorrupt as error:
            _log.error("peers may take this disk for an older copy: %s", error)
            record = None
        if record is None:
            record = DiskRecord(Disk(disk_id, 0))
        elif record.disk.disk_id != disk_id and not record.is_older_copy:
            record = DiskRecord(Disk(disk_id, 0), record.peers)
        return cls(filesystem, data_directory, record, rng.getrandbits(62))

    def record(self) -> DiskRecord:
        """A record of the current age and of the disks of the peers as of now, for ``keep``."""
        return DiskRecord(self.disk, dict(self._peers))

    def next_record(self) -> DiskRecord:
        """The record with which the age rises. It does not rise before a peer may have heard of this run."""
        if not self.is_named:
            return self.record()
        age, runs = self.disk.age + 1, self.disk.runs
        if not runs or runs[0].number != self._run_number:  # the first one of this run that is durable
            runs = (Run(age, self._run_number), *runs[: RUNS_MAX - 1])
        return DiskRecord(Disk(self.disk.disk_id, age, runs), dict(self._peers))

    def keep(self, record: DiskRecord) -> None:
        """Durable on return, and only then the age of this disk. Raises ``OSError``."""
        twin_file.keep(self._filesystem, self._data_directory, AGE_FILE, record)
        self.disk = record.disk

    def mark_older_copy(self) -> None:
        """Note for the next start that this disk is an older copy. Raises ``OSError``."""
        record = DiskRecord(self.disk, dict(self._peers), is_older_copy=True)
        twin_file.keep(self._filesystem, self._data_directory, AGE_FILE, record)
        self.is_older_copy = True

    def begin_again(self, disk_id: str) -> None:
        """Give this disk another id from now on; its replicas rejoin. Raises ``OSError``."""
        self.keep(DiskRecord(Disk(disk_id, 0), dict(self._peers)))
        self.is_older_copy = self.is_named = False

    def known_of(self, peer: NodeId) -> Disk | None:
        """The disk that a peer uses, as it said last."""
        disks = self._peers.get(peer)
        return disks[0] if disks else None

    def note(self, peer: NodeId, disk: Disk) -> bool:
        """A peer says which disk it uses. False, and nothing is noted, if it is an older copy."""
        disks = self._peers.get(peer, ())
        if disks and disk.disk_id == disks[0].disk_id:
            if not disk.continues(disks[0]):
                return False
            disks = disks[1:]
        elif any(disk.disk_id == earlier.disk_id for earlier in disks):
            return False
        self._peers[peer] = (Disk(disk.disk_id, disk.age, disk.runs[:1]), *disks[: DISKS_MAX - 1])
        return True
