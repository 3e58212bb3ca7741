"""Checks that a broker's responses to clients are true at the moment at which the broker gives them.

Decides: what a response may show and acknowledge, according to the checker's own record of committed entries.
Before a response is checked, this record is updated from every broker, so no response can be ahead of it.
Leaves to others: the relations between several responses (``chaos.checkers``).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence

from crc32c import crc32c

from broker.broker import Broker
from partitions.metadata.image import TopicInfo
from partitions.values import Acks, AcksKind, AppendReceipt, FetchResult, key_of
from raftlog.records.batch import APPEND_TIME_BIT, CHECKSUM_START, split_batches
from raftlog.types import METADATA_GROUP, Offset, TopicPartition
from verification.simulator.checker import Checker, Report
from verification.simulator.log_view import Entry
from verification.simulator.machine import Machine
from verification.simulator.originals import Originals, stored_records
from verification.simulator.records import GroupRecord, ReplicaRecord

_MAX_TIMESTAMP_AT = 14  # after the attributes, where the checksum begins
_TIME = struct.Struct(">q")
_SHOWN = "I18 reads are committed"
_ACKNOWLEDGED = "I19 acknowledged records are kept"
_PROMISED = "I20 acknowledged metadata is committed"


class ResponseChecks:
    """Checks every response against the state of the cluster at the moment of the response. Each method is
    called in the broker's process.
    """

    def __init__(self, checker: Checker, machines: Sequence[Machine], violated: Report) -> None:
        self._checker = checker
        self._machines = machines
        self._violated = violated

    def read(self, target: TopicPartition, broker: Broker, result: FetchResult) -> None:
        """Check that a fetch returns consecutive batches of the committed log (I18)."""
        record = self._record(broker, target)
        if record is None:
            return
        where = f"broker {broker.node_id} {target} at {result.offset}"
        self._check_end(record, result.high_watermark, where)
        if record.originals is not None:
            self._check_newest(record, record.originals, result, where)
        following: int = result.offset
        for number, batch in enumerate(split_batches(result.data)):
            header = batch.header
            entry = _entry_at(record, header.base_offset)
            shown = Entry(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
            if shown != entry and (record.originals is None or record.originals.is_known(shown)):
                self._violated(_SHOWN, f"{where}: {shown}; the committed entry is {entry}")
                return
            begins = header.base_offset
            if begins != following and not (number == 0 and begins < following <= header.last_offset):
                self._violated(_SHOWN, f"{where}: {shown} where {following} comes next")
            following = header.last_offset + 1
        if result.next_offset != following or following > result.high_watermark:
            detail = f"{result.next_offset} comes next, of {result.high_watermark}; shown up to {following}"
            self._violated(_SHOWN, f"{where}: {detail}")

    def _check_newest(
        self, record: GroupRecord, originals: Originals, result: FetchResult, where: str
    ) -> None:
        """Check that a fetch from a compacted log returns records as they were appended, and the newest
        record of each key (I18).
        """
        committed = originals.newest(record.committed)
        shown = {one.offset: one for batch in split_batches(result.data) for one in stored_records(batch)}
        for one in committed.values():
            is_due = result.offset <= one.offset < result.next_offset and one.value is not None
            if is_due and shown.get(one.offset) != one:
                self._violated(_SHOWN, f"{where}: {shown.get(one.offset)} in the place of {one}")
        for one in shown.values():
            if originals.appended(record.committed, one.offset) != one:
                self._violated(_SHOWN, f"{where}: {one} is not committed")

    def looked(self, target: TopicPartition, broker: Broker, reported: tuple[Offset, int | None]) -> None:
        """Check that the reported end of a partition is not above the commit index (I18)."""
        record = self._record(broker, target)
        if record is not None:
            self._check_end(record, reported[0], f"broker {broker.node_id} {target}")

    def appended(
        self, target: TopicPartition, sent: bytes, acks: Acks, broker: Broker, receipt: AppendReceipt
    ) -> None:
        """Check that acknowledged records are stored as they were sent: committed, or with ``acks=1`` on a
        disk (I19).

        The number of disks is checked only if the leader itself gives the response: otherwise disks may have
        changed since.
        """
        record = self._record(broker, target)
        if record is None:
            return
        where = f"broker {broker.node_id} {target} acks={acks}"
        following: int = receipt.base_offset
        for batch in split_batches(sent):
            first, following = following, following + batch.header.record_count
            checksum = _checksum(bytes(batch.data), receipt.timestamp_ms)
            wanted = (first, following - 1, receipt.leader_epoch, checksum)
            self._check_kept(record, broker, target, acks, receipt, wanted)
        if following != receipt.base_offset + receipt.record_count:
            self._violated(_ACKNOWLEDGED, f"{where}: {receipt} of {following - receipt.base_offset} records")

    def _check_kept(
        self,
        record: GroupRecord,
        broker: Broker,
        target: TopicPartition,
        acks: Acks,
        receipt: AppendReceipt,
        wanted: tuple[int, int, int, int],
    ) -> None:
        where = f"broker {broker.node_id} {target} acks={acks} {wanted}"
        disks = {node for node, replica in record.replicas.items() if _has(replica, wanted)}
        disks |= {
            node for node, lost in record.lost.items() if wanted in lost.entries or wanted[0] < lost.start
        }
        if receipt.durability.committed or acks.kind is not AcksKind.LEADER:
            entry = _entry_at(record, wanted[0])
            # A leader with a full disk has committed it by the others, and its own log does not show it.
            if entry != wanted and not (entry is None and record.is_majority(disks)):
                self._violated(_ACKNOWLEDGED, f"{where}: the committed entry is {entry}")
        group = broker.host.groups.get(record.group_id)
        if group is not None and group.is_leader:
            replica = broker.manager.replicas[key_of(target)]
            every = replica.in_sync() if acks.kind is AcksKind.EVERY else frozenset()
            count = max(receipt.durability.replicas, acks.count)
            if len(disks) < count or not every <= disks:
                self._violated(_ACKNOWLEDGED, f"{where}: {count} disks, {sorted(every)}; it is on {disks}")

    def created(self, broker: Broker, topic: TopicInfo) -> None:
        """Check that a broker that acknowledges a new topic has it, and that its creation is
        committed (I20).
        """
        shown = broker.controller.image.topics.get(topic.name)
        if shown is None or shown.topic_id != topic.topic_id:
            self._violated(_PROMISED, f"broker {broker.node_id} has no {topic}, but {shown}")
        self.changed(broker, topic.version)

    def gave_ids(self, broker: Broker, ids: range) -> None:
        """Check that producer ids are committed when they are allocated (I20)."""
        image = broker.controller.image
        if image.next_producer_id < ids.stop:
            self._violated(
                _PROMISED, f"broker {broker.node_id} gives {ids}, and knows up to {image.next_producer_id}"
            )
        self.changed(broker, image.version)

    def changed(self, broker: Broker, version: int) -> None:
        """Check that the metadata version in an acknowledgement is committed (I20)."""
        self._look()
        newest = self._checker.groups[METADATA_GROUP].committed[-1]
        if version - 1 > newest.last:
            self._violated(_PROMISED, f"broker {broker.node_id} tells {version}, committed is {newest}")

    def _check_end(self, record: GroupRecord, end: int, where: str) -> None:
        known = record.committed[-1].last + 1 if record.committed else 0
        if end > known:
            self._violated(_SHOWN, f"{where}: {end} is reported, {known} is the committed end")

    def _look(self) -> None:
        """Update the record of committed entries from all brokers.

        A response may contain entries from another broker than the one that gives it. That broker's files may
        have changed since it was last looked at.
        """
        for machine in self._machines:
            self._checker.stepped(machine)

    def _record(self, broker: Broker, target: TopicPartition) -> GroupRecord | None:
        """Return the updated record of a partition's group; None if the partition may be deleted."""
        self._look()
        topic = broker.controller.image.topics.get(target.topic)
        if topic is None:
            return None
        record = self._checker.groups.get(topic.partitions[target.partition].group_id)
        return None if record is None or record.is_retired else record


def _entry_at(record: GroupRecord, base: int) -> Entry | None:
    """Return the committed batch that begins at an offset."""
    place = record.places.get(base)
    return None if place is None else record.committed[place]


def _checksum(sent: bytes, append_time_ms: int | None) -> int:
    """Return the checksum of a sent batch in the log. If the leader stamps batches, its time is part of the
    batch.
    """
    body = bytearray(sent[CHECKSUM_START:])
    if append_time_ms is not None:
        body[1] |= APPEND_TIME_BIT
        _TIME.pack_into(body, _MAX_TIMESTAMP_AT, append_time_ms)
    return crc32c(body)


def _has(replica: ReplicaRecord, wanted: tuple[int, int, int, int]) -> bool:
    """Return whether a batch is on this replica's disk, or below the log start on this disk."""
    view = replica.durable
    view.refresh()
    if wanted[0] < view.start:
        return True
    place = bisect_left(view.entries, wanted)
    return place < len(view.entries) and view.entries[place] == wanted
