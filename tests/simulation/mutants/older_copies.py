"""Planted bugs of older copies of a disk."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_AGE = "tests/unit/storage/test_disk_age.py"
_NODE = "tests/unit/node/test_peer_disks.py"
_HOST = "tests/unit/node/test_refused_peers.py"
_OPENER = "tests/unit/partitions/test_opener.py"
_REGISTRY = "tests/unit/storage/test_replica_registry.py"

OLDER_COPIES = (
    Mutant(
        "a disk whose age has fallen passes for the disk itself",
        "raftlog.storage.disk_age:DiskAge.note",
        "if not disk.continues(disks[0]):",
        "if False:",
        script=_AGE,
    ),
    Mutant(
        "an older copy that has aged alone passes for the disk itself",
        "raftlog.storage.disk_age:Disk.continues",
        "and counted in (None, *(run.number for run in known.runs[:1]))",
        "",
        script=_AGE,
    ),
    Mutant(
        "a restart makes an older copy of a disk",
        "raftlog.storage.disk_age:DiskAge.next_record",
        "*runs[: RUNS_MAX - 1]",
        "",
        script=_AGE,
    ),
    Mutant(
        "a disk that another one has replaced comes back",
        "raftlog.storage.disk_age:DiskAge.note",
        "elif any(disk.disk_id == earlier.disk_id for earlier in disks):",
        "elif False:",
        script=_AGE,
    ),
    Mutant(
        "an age is told before it is durable",
        "raftlog.storage.disk_age:DiskAge.next_record",
        "return DiskRecord(",
        "self.disk = Disk(self.disk.disk_id, age, runs)\n    return DiskRecord(",
        script=_AGE,
    ),
    Mutant(
        "the disks of peers are forgotten with a restart",
        "raftlog.storage.disk_age:DiskAge.next_record",
        "dict(self._peers)",
        "{}",
        script=_AGE,
    ),
    Mutant(
        "a start does not age the disk",
        "raftlog.storage.disk_age:DiskAge.open",
        "if not opened.is_older_copy:",
        "if False:",
        script=_AGE,
    ),
    Mutant(
        "a broker that is told of an older copy forgets it at the next start",
        "raftlog.storage.disk_age:DiskAge.mark_older_copy",
        "is_older_copy=True)",
        "is_older_copy=False)",
        script=_AGE,
    ),
    Mutant(
        "a lost registry hides that a disk is an older copy",
        "raftlog.storage.disk_age:DiskAge.open",
        "elif record.disk.disk_id != disk_id and not record.is_older_copy:",
        "elif record.disk.disk_id != disk_id:",
        script=_AGE,
    ),
    Mutant(
        "a broker on an older copy is told nothing",
        "raftlog.node.peer_disks:PeerDisks._refuse",
        "self._name(peer)",
        "pass",
        script=_NODE,
    ),
    Mutant(
        "a broker that is told of an older copy goes on",
        "raftlog.node.peer_disks:PeerDisks.run",
        "self._on_older_copy()",
        "pass",
        script=_NODE,
    ),
    Mutant(
        "a broker begins again although the next start will not know why",
        "raftlog.node.peer_disks:PeerDisks._mark_older_copy",
        "await asyncio.sleep(MARK_AGAIN_S)",
        "return",
        script=_NODE,
    ),
    Mutant(
        "a peer with a new disk stays refused",
        "raftlog.node.peer_disks:PeerDisks.received",
        "self.refused.discard(peer)",
        "pass",
        script=_NODE,
    ),
    Mutant(
        "a broker names its disk only with the next interval",
        "raftlog.node.peer_disks:PeerDisks.connected",
        "self._name(peer)",
        "pass",
        script=_NODE,
    ),
    Mutant(
        "an age that could not be stored is told",
        "raftlog.node.peer_disks:PeerDisks._rise",
        "return",
        "pass",
        script=_NODE,
    ),
    Mutant(
        "frames of an older copy are acted on",
        "raftlog.node.group_host:GroupHost.frame_received",
        "if sender in self._refused:",
        "if False:",
        script=_HOST,
    ),
    Mutant(
        "an older copy of a replica votes",
        "raftlog.hosting.opener:LogOpener.open",
        "if is_rejoining and self.registry.is_older_copy(group_id):",
        "if False:",
        script=_OPENER,
    ),
    Mutant(
        "an older copy of the only replica waits for ever",
        "partitions.hosting.opener:ReplicaOpener._rejoins",
        "return len(partition.all_replicas) > 1",
        "return True",
        script=_OPENER,
    ),
    Mutant(
        "an older copy from before an unsafe recovery survives it again",
        "partitions.hosting.opener:ReplicaOpener._keep_pace",
        "if self.logs.is_older_copy(partition.group_id, directory):",
        "if False:",
        script=_OPENER,
    ),
    Mutant(
        "the metadata that is not confirmed says whether an older copy is the only one",
        "partitions.hosting.opener:ReplicaOpener.open",
        "if not may_begin and self.logs.is_older_copy(partition.group_id, directory):",
        "if False:",
        script=_OPENER,
    ),
    Mutant(
        "an older copy keeps the registry of the disk",
        "raftlog.storage.replica_registry:ReplicaRegistry.begin_again",
        "frozenset(), True",
        "self._groups, True",
        script=_REGISTRY,
    ),
    Mutant(
        "which replicas are older copies is forgotten with a restart",
        "raftlog.storage.replica_registry:ReplicaRegistry._save",
        "self._is_older_copy)",
        "False)",
        script=_REGISTRY,
    ),
)
