"""Opens the log of a partition's replica: an initial or added replica, or the survivor of an unsafe recovery.

Decides: whether a directory with an earlier log (from before an unsafe recovery, or of a removed partition)
is deleted or continued, and the membership and offset with which a group begins. Leaves to others: when to
open (``hosting.supervisor``), this disk's records about the group (``raftlog.hosting.opener``). All functions
wait for the disk: call them in a thread.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from partitions.hosting.directories import Folders
from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.metadata.topic_config import complete, number
from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.hosting.opener import LogOpener, make_durable
from raftlog.hosting.tenant import NotYet
from raftlog.storage.log_storage import after, carry_out
from raftlog.storage.members import batch_of
from raftlog.storage.recovery import has_lived
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import EntryId, Index, NodeId, Term

_log = logging.getLogger("raftlog.partitions")


class MetadataBehind(NotYet):
    """Raised if the metadata of this broker may be too old for the directory: wait for newer metadata."""


@dataclass(frozen=True, slots=True)
class ReplicaOpener:
    """Opens the logs of a broker's replicas. The fields are the parts of the broker that this needs."""

    node_id: NodeId
    logs: LogOpener
    folders: Folders

    def first_membership(self, partition: PartitionInfo) -> Membership:
        """The membership with which a new log begins; an existing log has its own membership.

        The result is the group's first membership while that is in force, else empty: then the leader sends
        the log with the later membership.
        """
        is_first = partition.membership_index < 0 and self.node_id in partition.replicas
        return Membership(frozenset(partition.replicas)) if is_first else NOBODY

    def open(self, topic: TopicInfo, partition: PartitionInfo, *, may_begin: bool) -> SegmentedLog:
        """Open the log of a replica.

        ``may_begin`` is True if the metadata is confirmed. Without confirmed metadata, a replica without
        files may be the remainder of a deleted topic whose files, with the replica's vote, were deleted here.
        Raises ``MetadataBehind``, ``LogCorrupt``, ``OSError``.
        """
        directory = self.folders.of_partition(topic, partition.partition)
        if not may_begin and not has_lived(self.logs.filesystem, directory):
            raise MetadataBehind(f"waiting for current metadata before {directory} is created")
        self._keep_pace(topic, partition, directory, may_give_up=may_begin)

        def is_only() -> bool:
            if not may_begin:
                raise MetadataBehind(f"waiting for current metadata: {directory} is an older copy")
            return len(partition.all_replicas) == 1

        log = self.logs.open(
            partition.group_id,
            directory,
            log_settings(topic),
            is_rejoining=not partition.is_initial(self.node_id),
            is_only=is_only,
        )
        before_first = Index(partition.first_offset - 1)
        if log.last_index < before_first and partition.is_initial(self.node_id):
            # All initial replicas begin with equal logs, as after an empty snapshot.
            first = self.first_membership(partition)
            change = log.install_change(EntryId(Term(0), before_first), first, b"")
            carry_out(after(change, log.removal_change))
        return log

    def _keep_pace(
        self, topic: TopicInfo, partition: PartitionInfo, directory: str, *, may_give_up: bool
    ) -> None:
        """Make the folder match the newest log number of its partition, or move the folder to the trash.

        Each recovery makes a new group. The registry contains that group once the survivor has opened it, so
        a missing mark or folder was lost afterwards. A survivor that has lost its disk rejoins other replicas
        once the group has grown. The folder of any other replica may be from before the recovery if it has no
        mark.
        """
        recoveries = partition.unsafe_recoveries
        done = self.folders.recovery_of(directory)
        if done > partition.log_number:
            raise MetadataBehind(
                f"{directory} has the log number {done}, which the metadata of this broker does not have yet"
            )
        if done == partition.log_number:
            return
        if self.logs.is_older_copy(partition.group_id, directory):
            self._put_away(directory, "older-copy", "it is an older copy of the log", may_give_up)
        elif done < partition.earlier_logs and not self.logs.registry.has_held(partition.group_id):
            self._put_away(directory, "removed", "its partition was removed", may_give_up)
        elif recoveries and recoveries[-1].survivor != self.node_id:
            why = f"its partition was recovered from broker {recoveries[-1].survivor}"
            self._put_away(directory, "recovered-elsewhere", why, may_give_up)
        elif self.logs.registry.has_held(partition.group_id):
            _log.warning("%s has lost its file recovery, which is written again", directory)
        elif self.logs.filesystem.exists(directory):
            self._survive(topic, directory)
        elif partition.membership_index < 0:
            raise LogCorrupt(f"{directory} does not exist, but its partition was recovered from it")
        self.folders.mark(directory, partition.log_number)

    def _put_away(self, directory: str, name: str, why: str, may_give_up: bool) -> None:
        if not self.logs.filesystem.exists(directory):
            return
        if not may_give_up:
            raise MetadataBehind(f"waiting for current metadata before {directory} goes to the trash")
        _log.warning("%s goes to the trash: %s", directory, why)
        self.folders.put_away(directory, name)

    def _survive(self, topic: TopicInfo, directory: str) -> None:
        """Append a membership of this broker alone to the survivor's log, in a new term."""
        log = SegmentedLog.open(self.logs.filesystem, directory, log_settings(topic), self.logs.clock)
        try:
            state = log.restored(NOBODY).hard_state
            term, index = Term(state.term + 1), Index(log.last_index + 1)
            alone = Membership(frozenset({self.node_id}))
            log.save_hard_state(HardState(term, self.node_id))
            log.append([batch_of(alone, index=index, term=term, timestamp_ms=self.logs.clock.wall_ms())])
            make_durable(log)
        finally:
            log.close()
        _log.warning("%s: unsafe recovery continues this log up to offset %d", directory, index - 1)


def log_settings(topic: TopicInfo) -> LogSettings:
    """The storage settings that follow from a topic's configuration."""
    config = complete(topic.config, topic.replication_factor)
    return LogSettings(segment_bytes=number(config, "segment.bytes"), segment_ms=number(config, "segment.ms"))
