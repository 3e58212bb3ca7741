"""Checks log starts: replicas delete only what retention covers.

Decides: what retention may delete, by the bytes that are left on the disks. Leaves to others: the entries
after a log's start (``checker``), and what clients read (``chaos.checkers``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.simulator.checker import Checker
from chaos.simulator.machine import Machine
from chaos.simulator.records import GroupRecord, ReplicaRecord
from chaos.simulator.run import Run
from partitions.metadata.image import TopicInfo
from raftlog.types import METADATA_GROUP, TopicPartition

SLACK_MS: Final = 450  # a tolerance of 200 ms, both when records are stored and when they are deleted
_INVARIANT: Final = "I22 retention deletes no more than allowed"


class LogStarts:
    """The checker of a run."""

    def __init__(self, run: Run, machines: Sequence[Machine], checker: Checker) -> None:
        self._run = run
        self._machines = machines
        self._checker = checker

    def moved(self, record: GroupRecord, replica: ReplicaRecord) -> None:
        """A log start has moved: all deleted entries were committed, and there was more than retention keeps.

        A segment may be deleted while the log with it is larger than ``retention.bytes``, or when its
        newest record is as old as ``retention.ms`` by true time.
        """
        topic = self._topic_of(record, replica)
        if topic is None or record.is_retired or not replica.log_start:
            return
        where = f"group {record.group_id} on {replica.machine.name} begins at {replica.log_start}"
        end = record.committed[-1].last + 1 if record.committed else 0
        if replica.log_start > end:
            self._run.violated(_INVARIANT, f"{where}, and is committed up to {end}")
            return
        if self._is_old(record, replica, int(topic.config.get("retention.ms", -1))):
            return
        wanted = int(topic.config.get("retention.bytes", -1))
        segment = max(int(topic.config["segment.bytes"]), self._largest_batch)
        kept = max(_bytes_from(record, one, replica.log_start) for one in record.replicas.values())
        if wanted < 0 or kept + segment <= wanted:
            detail = f"{where}; {kept} bytes are left, {wanted} shall be kept but for a segment of {segment}"
            self._run.violated(_INVARIANT, detail)

    def _is_old(self, record: GroupRecord, replica: ReplicaRecord, wanted_ms: int) -> bool:
        last = next((entry for entry in record.committed if entry.last == replica.log_start - 1), None)
        if wanted_ms < 0 or last is None:
            return False
        stored_s = record.stored_s.get((last.base, last.term))
        return stored_s is None or (self._run.loop.now - stored_s) * 1000 >= wanted_ms - SLACK_MS

    def reported(self, target: TopicPartition, start: int) -> None:
        """A client learns that all records below are deleted: some replica must begin there."""
        starts: set[int] = set()
        for machine in self._machines:
            topics = {} if machine.broker is None else machine.broker.controller.image.topics
            if target.topic in topics:
                group_id = topics[target.topic].partitions[target.partition].group_id
                record = self._checker.groups[group_id]
                for replica in record.replicas.values():
                    replica.look(record, durable=False)
                    starts |= {replica.log_start, replica.seen.start}
        if starts and start > max(starts):
            self._run.violated(_INVARIANT, f"{target} is said to begin at {start}, not at {starts}")

    def check_all(self) -> None:
        """The end of a run: also logs that moved without a later message.

        After an unsafe recovery another group may have its log in the place of a deleted one.
        """
        for record in self._checker.groups.values():
            for replica in () if record.is_retired else record.replicas.values():
                replica.look(record, durable=False)
                replica.log_start = replica.seen.start
                self.moved(record, replica)

    @property
    def _largest_batch(self) -> int:
        return 100 + 5 * (30 + self._run.odds.padding_bytes)

    def _topic_of(self, record: GroupRecord, replica: ReplicaRecord) -> TopicInfo | None:
        """None for a log without retention, or whose topic is unknown."""
        broker = replica.machine.broker
        if broker is None or record.group_id == METADATA_GROUP:
            return None
        for topic in broker.controller.image.topics.values():
            if any(partition.group_id == record.group_id for partition in topic.partitions):
                return topic
        return None


def _bytes_from(record: GroupRecord, replica: ReplicaRecord, start: int) -> int:
    replica.look(record, durable=False)
    return sum(header.size_bytes for header in replica.headers() if header.base_offset >= start)
