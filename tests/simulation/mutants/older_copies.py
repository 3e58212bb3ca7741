"""Planted bugs of older copies of a disk."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant
from tests.simulation.mutants.rejoin import loses_files

_AGE = "tests/unit/storage/test_disk_age.py"
_NODE = "tests/unit/node/test_peer_disks.py"
_HOST = "tests/unit/node/test_refused_peers.py"
_OPENER = "tests/unit/partitions/test_opener.py"
_HOSTED = "tests/unit/hosting/test_opener.py"
_HOSTING = "tests/scenarios/hosting/test_hosting.py"
_PROGRESS = "tests/unit/storage/test_replica_progress.py"
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
        "raftlog.hosting.opener:LogOpener._what_is_lost",
        "if is_of_older_disk:",
        "if False:",
        script=_OPENER,
    ),
    Mutant(
        "an older copy of the only replica waits for ever",
        "partitions.hosting.opener:ReplicaOpener.open",
        "return len(partition.all_replicas) == 1",
        "return False",
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
        "if not may_begin:",
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
    Mutant(
        "an older copy of one folder is not noticed",
        "raftlog.hosting.opener:LogOpener._what_is_lost",
        'return "" if noted is None else noted.missing_in(log)',
        'return ""',
        needs=loses_files,
    ),
    Mutant(
        "an older copy of the only metadata replica waits for ever",
        "raftlog.hosting.opener:LogOpener.was_only",
        "noted.is_only",
        "False",
        script=_HOSTED,
    ),
    Mutant(
        "an older copy of the whole disk says which replica was the only one",
        "raftlog.hosting.opener:LogOpener.was_only",
        " and not self.registry.is_older_copy(group_id)",
        "",
        script=_HOSTED,
    ),
    Mutant(
        "a lower term is no sign of an older copy",
        "raftlog.storage.replica_progress:Progress.missing_in",
        "if state.term < self.term:",
        "if False:",
        script=_PROGRESS,
    ),
    Mutant(
        "a lost vote is no sign of an older copy",
        "raftlog.storage.replica_progress:Progress.missing_in",
        "and self.voted_for not in (None, state.voted_for)",
        "and False",
        script=_PROGRESS,
    ),
    Mutant(
        "an entry of another term passes for the one that was noted",
        "raftlog.storage.replica_progress:Progress.missing_in",
        "not log.holds(self.entry)",
        "self.entry.index > log.last_index",
        script=_PROGRESS,
    ),
    Mutant(
        "a replica whose noted entry is deleted passes for an older copy",
        "raftlog.storage.replica_progress:Progress.missing_in",
        "if self.entry.index >= log.first_index - 1 and",
        "if",
        script=_PROGRESS,
    ),
    Mutant(
        "what is not durable is noted",
        "raftlog.storage.replica_progress:progress_of",
        "min(commit_index, log.durable_index)",
        "commit_index",
        script=_PROGRESS,
    ),
    Mutant(
        "what is not committed is noted",
        "raftlog.storage.replica_progress:progress_of",
        "min(commit_index, log.durable_index)",
        "log.durable_index",
        script=_PROGRESS,
    ),
    Mutant(
        "a vote is noted before it is durable",
        "raftlog.storage.durable_state:DurableState.set_hard_state",
        "self.state.hard_state = hard_state",
        "self.state.hard_state = self.durable_hard_state = hard_state",
        script=_PROGRESS,
    ),
    Mutant(
        "a vote is never noted",
        "raftlog.storage.durable_state:DurableState._write",
        "self.durable_hard_state = hard_state",
        "pass",
        script=_PROGRESS,
    ),
    Mutant(
        "the note of a replica that is not open is lost",
        "raftlog.storage.replica_progress:ReplicaProgress.keep",
        "if group in held",
        "if False",
        script=_PROGRESS,
    ),
    Mutant(
        "notes of replicas that are gone are kept for ever",
        "raftlog.storage.replica_progress:ReplicaProgress.keep",
        "if group in held",
        "",
        script=_PROGRESS,
    ),
    Mutant(
        "the progress of a replica that rejoins is noted",
        "raftlog.hosting.progress_keeper:ProgressKeeper._notes",
        " and not group.is_rejoining",
        "",
        script=_HOSTING,
    ),
)
