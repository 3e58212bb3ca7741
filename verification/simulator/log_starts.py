"""Checks log starts: replicas delete only records that retention allows, and the log start that readers see
never falls.

Decides: which records retention may delete, judged by the bytes on the disks, and where readers may begin.
Leaves to others: the entries after a log's start (``checker``), and what clients read (``chaos.checkers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from partitions.metadata.image import TopicInfo
from partitions.replica.machine import PartitionMachine
from partitions.values import FetchResult
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import METADATA_GROUP, GroupId, TopicPartition
from verification.simulator.checker import Checker
from verification.simulator.machine import Machine
from verification.simulator.records import GroupRecord, ReplicaRecord
from verification.simulator.run import Run

# A tolerance of 200 ms, both when records are dated and when they are deleted; a leader dates a batch when it
# comes, and the disk has the batch later.
SLACK_MS: Final = 550
_INVARIANT: Final = "I22 retention deletes no more than allowed"
_RISES: Final = "I35 the log start never falls"


class LogStarts:
    """Checks the log starts of all replicas of a run."""

    def __init__(self, run: Run, machines: Sequence[Machine], checker: Checker) -> None:
        self._run = run
        self._largest_batch = 100 + 5 * (30 + run.odds.padding_bytes)  # a segment has one batch at least
        self._machines = machines
        self._checker = checker
        self._replicated: dict[GroupId, int] = {}  # the highest that a replica has applied
        self._asked: dict[GroupId, int] = {}  # the highest offset that a client wants deleted up to
        self._deleted: dict[GroupId, int] = {}  # and that was acknowledged
        self._shown: dict[GroupId, dict[int, int]] = {}  # by leaders that know it, by term

    def changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        """Check a replica that may have applied another log start (I22). A leader's log start, which readers
        see, must not fall (I35).

        A leader that is ready has applied all entries of earlier terms. So it shows no lower log start than
        the leaders of earlier terms have shown, even if they showed theirs later.
        """
        start = _applied_start(group)
        if start is None or record.is_retired:
            return
        if start > self._replicated.get(record.group_id, 0):
            self._replicated[record.group_id] = start
            self._check_covered(record, replica, start, f"group {record.group_id} shall begin at {start}")
        if group.is_ready:
            self._show(record, group.term, max(start, group.log.first_index), replica.machine.name)

    def answered(self, target: TopicPartition, result: FetchResult) -> None:
        """Check a log start that a reader has received (I35)."""
        record = self._record_of(target)
        shown = {} if record is None else self._shown.get(record.group_id, {})
        highest = max((start for term, start in shown.items() if term < result.leader_epoch), default=0)
        if result.log_start_offset < highest:
            detail = f"epoch {result.leader_epoch} shows {result.log_start_offset}, an earlier one {highest}"
            self._run.violated(_RISES, f"{target}: {detail}")

    def asked(self, target: TopicPartition, offset: int) -> None:
        """Note that a client requests the deletion of all records below an offset: from now on they may be
        deleted.
        """
        record = self._record_of(target)
        if record is not None:
            self._asked[record.group_id] = max(offset, self._asked.get(record.group_id, 0))

    def deleted(self, target: TopicPartition, offset: int, start: int) -> None:
        """Note the log start of an acknowledged deletion: at the end no record below it may be
        shown (I35).
        """
        record = self._record_of(target)
        if record is None:
            return
        if start < offset:
            self._run.violated(_RISES, f"{target} is deleted up to {offset}, and begins at {start}")
        if start > (latest := self.latest(record)):
            self._run.violated(_INVARIANT, f"{target} is deleted up to {start}, not {latest} at most")
        self._deleted[record.group_id] = max(start, self._deleted.get(record.group_id, 0))

    def _show(self, record: GroupRecord, term: int, start: int, name: str) -> None:
        shown = self._shown.setdefault(record.group_id, {})
        highest = max((known for epoch, known in shown.items() if epoch <= term), default=0)
        if start < highest:
            detail = f"{name} leads group {record.group_id} in term {term} from {start}, after {highest}"
            self._run.violated(_RISES, detail)
        shown[term] = start

    def moved(self, record: GroupRecord, replica: ReplicaRecord) -> None:
        """Check a log start that has moved: all deleted entries were committed, and the log held more than
        retention keeps.

        A segment may be deleted while the log with it is larger than ``retention.bytes``, or when its
        newest record is as old as ``retention.ms`` by true time.
        """
        where = f"group {record.group_id} on {replica.machine.name} begins at {replica.log_start}"
        self._check_covered(record, replica, replica.log_start, where)

    def _check_covered(self, record: GroupRecord, replica: ReplicaRecord, start: int, where: str) -> None:
        topic = self._topic_of(record, replica)
        if topic is None or record.is_retired or not start:
            return
        first = _first_offset(topic, record)
        end = record.committed[-1].last + 1 if record.committed else first
        if start == first:
            return  # it begins behind a removed partition of its number
        if start > end:
            self._run.violated(_INVARIANT, f"{where}, and is committed up to {end}")
            return
        if start <= self._asked.get(record.group_id, 0) or self._is_old(
            record, start, int(topic.config.get("retention.ms", -1))
        ):
            return
        wanted = int(topic.config.get("retention.bytes", -1))
        kept = max(_bytes_from(record, one, start) for one in record.replicas.values())
        sizes = (header.size_bytes for one in record.replicas.values() for header in one.headers())
        self._largest_batch = max(self._largest_batch, *sizes, 0)
        segment = max(int(topic.config["segment.bytes"]), self._largest_batch)
        if wanted < 0 or kept + segment <= wanted:
            detail = f"{where}; {kept} bytes are left, {wanted} shall be kept but for a segment of {segment}"
            self._run.violated(_INVARIANT, detail)

    def _is_old(self, record: GroupRecord, start: int, wanted_ms: int) -> bool:
        last = next((entry for entry in record.committed if entry.last == start - 1), None)
        if wanted_ms < 0 or last is None:
            return False
        stored_s = record.stored_s.get((last.base, last.term))
        return stored_s is None or (self._run.loop.now - stored_s) * 1000 >= wanted_ms - SLACK_MS

    def reported(self, target: TopicPartition, start: int) -> None:
        """Check that a client is right to learn that all records below an offset are deleted.

        Some replica must have applied this log start, or its log must begin there.
        """
        record = self._record_of(target)
        if record is not None and start > (latest := self.latest(record)):
            self._run.violated(
                _INVARIANT, f"the reported log start of {target} is {start}; it is at most {latest}"
            )

    def latest(self, record: GroupRecord) -> int:
        """The latest log start of any replica; it may have risen or been applied at this moment."""
        starts = [self._replicated.get(record.group_id, 0)]
        for replica in record.replicas.values():
            replica.look(record, durable=False)
            starts += (replica.log_start, replica.seen.start)
            if (group := replica.opened(record.group_id)) is not None:
                starts.append(_applied_start(group) or 0)
        return max(starts)

    def _record_of(self, target: TopicPartition) -> GroupRecord | None:
        """Return the state of the partition's group, which is named by the running broker with the newest
        metadata.
        """
        images = [machine.broker.controller.image for machine in self._machines if machine.broker is not None]
        topic = max(images, key=lambda image: image.version).topics.get(target.topic) if images else None
        if topic is None or target.partition >= len(topic.partitions):
            return None
        return self._checker.groups.get(topic.partitions[target.partition].group_id)

    def check_all(self) -> None:
        """Check all logs at the end of a run, including logs whose log start moved after the last message.

        After an unsafe recovery a new group may have its log at the path of a deleted group's log.
        """
        for record in self._checker.groups.values():
            for replica in () if record.is_retired else record.replicas.values():
                replica.look(record, durable=False)
                replica.log_start = replica.seen.start
                self.moved(record, replica)
                self._check_kept(record, replica)

    def _check_kept(self, record: GroupRecord, replica: ReplicaRecord) -> None:
        """Check that a leader of a healed cluster shows no record whose deletion was acknowledged."""
        group, wanted = replica.opened(record.group_id), self._deleted.get(record.group_id, 0)
        if group is None or not group.is_ready:
            return
        if (start := max(_applied_start(group) or 0, group.log.first_index)) < wanted:
            where = f"group {record.group_id} on {replica.machine.name}"
            self._run.violated(_RISES, f"{where} begins at {start}, and is deleted up to {wanted}")

    def _topic_of(self, record: GroupRecord, replica: ReplicaRecord) -> TopicInfo | None:
        """Return the topic of a group; None for a log without retention, or whose topic is unknown."""
        broker = replica.machine.broker
        if broker is None or record.group_id == METADATA_GROUP:
            return None
        for topic in broker.controller.image.topics.values():
            if any(partition.group_id == record.group_id for partition in topic.partitions):
                return topic
        return None


def _applied_start(group: RaftGroup[object]) -> int | None:
    machine = group._applier._machine
    return machine.log_start.offset if isinstance(machine, PartitionMachine) else None


def _first_offset(topic: TopicInfo, record: GroupRecord) -> int:
    found = (each.first_offset for each in topic.partitions if each.group_id == record.group_id)
    return next(found, 0)


def _bytes_from(record: GroupRecord, replica: ReplicaRecord, start: int) -> int:
    replica.look(record, durable=False)
    return sum(header.size_bytes for header in replica.headers() if header.base_offset >= start)
