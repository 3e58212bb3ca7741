"""A cluster in memory for tests of the HTTP side: it stores real batches without replication.

It keeps the contracts of the ports in ``broker.ports``: whole batches, validated as by a replica,
stamped by a leader, read from the batch with the offset, awaited, and deleted with their topic.
``Faults`` injects errors into partitions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field

from msgspec.structs import replace

from broker.join_tokens import JoinTokens
from broker.ports import HealthProbes, Limits, Services
from partitions.metadata.features import NEWEST
from partitions.metadata.image import BrokerInfo, MetadataImage, TopicInfo
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.topic_config import complete
from partitions.replica.selection import Selection
from partitions.replica.topic_rules import Body, TopicRules, batches_of
from partitions.routing.confirmed_topics import ConfirmedTopics
from partitions.values import (
    Acks,
    AcksKind,
    AppendReceipt,
    AtTime,
    Durability,
    FetchRequest,
    FetchResult,
    LastRecords,
    PartitionStatus,
    Position,
    Start,
)
from raftlog.clock import SystemClock, TrustedClock
from raftlog.errors import (
    CommitUnknown,
    CorruptBatch,
    InvalidRequest,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionDecommissioned,
    PartitionNotFound,
    RecordTooLarge,
    TopicNotFound,
)
from raftlog.records.batch import SEQUENCE_MAX, Batch, BatchHeader, stamp
from raftlog.records.control import Archived, leader_change_batch
from raftlog.records.reader import read_records
from raftlog.records.tags import TagSelection
from raftlog.types import Index, NodeId, Offset, Term, TopicPartition
from tests.helpers.fake_admin import FakeAdmin
from tests.helpers.fake_controller import FakeController
from tests.helpers.instant_delays import instant_delays
from tests.helpers.instant_groups import instant_groups
from tests.helpers.instant_transactions import instant_transactions
from transactions.one_shot import OneShots

TERM = Term(7)


@dataclass(slots=True)
class FakeLog:
    """One partition: its batches, and an event that is replaced with every change."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    archived: int = 0
    end: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: bool = False
    by_sequence: dict[tuple[int, int, int], AppendReceipt] = field(default_factory=dict)
    newest: dict[int, tuple[int, int]] = field(default_factory=dict)  # epoch, next sequence; by producer id

    def notify(self) -> None:
        """Wake all waiting readers."""
        self.changed.set()
        self.changed = asyncio.Event()


class FakeGateway:
    """Partitions without replicas. ``faults`` raises an error for a partition that has one."""

    def __init__(self, controller: FakeController, clock: TrustedClock) -> None:
        self.controller = controller
        self.clock = clock
        self.faults: dict[TopicPartition, Exception] = {}
        self.leaders: dict[TopicPartition, NodeId | None] = {}
        self.waiting = 0
        self.append_delay_s = 0.0  # beyond the timeout of an append its outcome is unknown
        self.durabilities: dict[TopicPartition, Durability] = {}
        self._logs: dict[tuple[str, int], FakeLog] = {}
        controller.deleted = self._deleted

    def log(self, target: TopicPartition) -> FakeLog:
        """The log of a partition, also for inspection by tests."""
        topic = self._topic(target.topic)
        if target.partition >= len(topic.partitions):
            raise PartitionNotFound(f"there is no {target}", topic=target.topic)
        return self._logs.setdefault((topic.topic_id, target.partition), FakeLog())

    async def append(
        self,
        target: TopicPartition,
        batches: Body,
        *,
        acks: Acks,
        timeout_ms: int,
        transactional_id: str | None = None,
        client: str = "",
    ) -> AppendReceipt:
        """Validated, stamped and stored at once."""
        log, topic = self._working(target), self._topic(target.topic)
        if target.partition >= topic.writable_partitions:
            raise PartitionDecommissioned(
                f"{target} is decommissioned", topic=target.topic, partition=target.partition
            )
        rules = TopicRules.of(complete(topic.config, topic.replication_factor), topic.replication_factor)
        try:
            checked = rules.validated(batches, in_transaction=transactional_id is not None)
            await rules.check_records(checked)
        except RecordTooLarge:
            checked = batches_of(batches)
            if _before(log, checked[0].header) is None:  # what is stored was not too large then
                raise
        await self._replicated(timeout_ms / 1000)
        header = checked[0].header
        if (before := _before(log, header)) is not None:
            return replace(before, was_duplicate=True)
        _check_order(log, header)
        now_ms = self.clock.wall_ms() if rules.stamps_append_time else None
        base_offset = log.end
        for batch in checked:
            log.batches.append(
                stamp(batch.data, base_offset=log.end, leader_epoch=TERM, append_time_ms=now_ms)
            )
            log.end = log.batches[-1].last_offset + 1
        receipt = AppendReceipt(
            base_offset=Offset(base_offset),
            record_count=log.end - base_offset,
            leader_epoch=TERM,
            timestamp_ms=now_ms,
            was_duplicate=False,
            durability=self.durabilities.get(target) or _durability(acks, topic),
        )
        if header.is_sequenced:
            log.by_sequence[header.producer_id, header.producer_epoch, header.base_sequence] = receipt
            following = (header.base_sequence + receipt.record_count) & SEQUENCE_MAX
            log.newest[header.producer_id] = (header.producer_epoch, following)
        log.notify()
        return receipt

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """Whole batches from the one with the offset; waits like the real one."""
        log = self._working(target)
        await asyncio.sleep(0)  # a handler that asks forever can be timed out
        begin = self._offset(log, request.position)
        if not log.start <= begin <= log.end:
            raise OffsetOutOfRange(
                f"{begin} is outside {log.start} to {log.end}", start=log.start, end=log.end
            )
        ends_at = asyncio.get_running_loop().time() + request.wait_ms / 1000
        while True:
            data, next_offset = self._data(log, begin, request.bytes_max), Offset(-1)
            if (wanted := request.selection) is not None:
                data, next_offset = self._selected(log, begin, request, wanted)
            left_s = ends_at - asyncio.get_running_loop().time()
            if len(data) >= request.bytes_min or left_s <= 0:
                break
            await self._changed(log, left_s)
            if log.is_gone:
                raise TopicNotFound(f"the topic {target.topic} was deleted", topic=target.topic)
        taken = [batch for batch in log.batches if batch.last_offset >= begin]
        size, last = 0, begin - 1
        for batch in taken:
            size += len(batch.data)
            if size > len(data):
                break
            last = batch.last_offset
        return FetchResult(
            offset=Offset(begin),
            data=data,
            next_offset=Offset(last + 1) if next_offset < 0 else next_offset,
            log_start_offset=Offset(log.start),
            high_watermark=Offset(log.end),
            last_stable_offset=Offset(log.end),
            end=Offset(log.end),
            leader_epoch=TERM,
        )

    async def delete_before(self, target: TopicPartition, offset: Offset, *, timeout_ms: int) -> Offset:
        """Records below the offset are refused from now on."""
        log = self._working(target)
        if offset > log.end:
            raise InvalidRequest(f"offset is {offset}; send at most {log.end}", field="offset")
        log.start = max(log.start, offset)
        return Offset(log.start)

    async def set_archived(self, target: TopicPartition, archived: Archived, *, timeout_ms: int) -> Offset:
        """A lower offset counts only if it may."""
        log = self._working(target)
        if archived.offset > log.end:
            raise InvalidRequest(f"offset is {archived.offset}; send at most {log.end}", field="offset")
        log.archived = archived.offset if archived.may_lower else max(log.archived, archived.offset)
        return Offset(log.archived)

    async def offset_at(
        self, target: TopicPartition, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """By a scan of all records."""
        log = self.log(target)
        offset = self._offset(log, position)
        for batch in log.batches:
            if batch.base_offset <= offset <= batch.last_offset:
                try:
                    times = {record.offset: record.timestamp_ms for record in read_records(batch)}
                except CorruptBatch:
                    return Offset(offset), batch.header.max_timestamp
                return Offset(offset), times.get(offset)
        return Offset(offset), None

    async def describe(self, topic: str, partitions: Collection[int] | None = None) -> list[PartitionStatus]:
        """In arbitrary order."""
        statuses = []
        for info in reversed(self._topic(topic).partitions):
            if partitions is not None and info.partition not in partitions:
                continue
            target = TopicPartition(topic, info.partition)
            log = self.log(target)
            statuses.append(
                PartitionStatus(
                    partition=info.partition,
                    leader=self.leader_of(target),
                    term=TERM,
                    replicas=info.replicas,
                    in_sync=info.replicas,
                    commit_index=log.end - 1,
                    log_start_offset=Offset(log.start),
                    high_watermark=Offset(log.end),
                    log_end_offset=Offset(log.end),
                    size_bytes=sum(len(batch.data) for batch in log.batches),
                    archived_up_to=Offset(log.archived),
                    is_sealed=info.is_decommissioned,
                )
            )
        return statuses

    def leader_of(self, target: TopicPartition) -> NodeId | None:
        """The preferred leader, unless a test has set another."""
        if target in self.leaders:
            return self.leaders[target]
        return self._topic(target.topic).partitions[target.partition].replicas[0]

    def change_leader(self, target: TopicPartition) -> None:
        """A control record at the end of the log, as a new leader may write it."""
        log = self.log(target)
        batch = leader_change_batch(
            base_offset=log.end, leader_epoch=TERM, leader=NodeId(1), timestamp_ms=1_000
        )
        log.batches.append(batch)
        log.end = batch.last_offset + 1
        log.notify()

    def cut(self, target: TopicPartition, start: int) -> None:
        """Retention has deleted everything below ``start``."""
        log = self.log(target)
        log.start = start
        log.batches = [batch for batch in log.batches if batch.last_offset >= start]

    def _working(self, target: TopicPartition) -> FakeLog:
        """The log of a partition; raises the fault of a partition that has one."""
        if target in self.faults:
            raise self.faults[target]
        return self.log(target)

    def _topic(self, name: str) -> TopicInfo:
        topic = self.controller.image.topics.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name}", topic=name)
        return topic

    def _deleted(self, topic: TopicInfo) -> None:
        for info in topic.partitions:
            log = self._logs.pop((topic.topic_id, info.partition), None)
            if log is not None:
                log.is_gone = True
                log.notify()

    def _offset(self, log: FakeLog, position: Position) -> int:
        match position:
            case Start.EARLIEST:
                return log.start
            case Start.LATEST:
                return log.end
            case LastRecords():
                offsets = [log.start] * position.count + [at for batch in log.batches for at in _seen(batch)]
                return max(log.start, offsets[-position.count])
            case AtTime():
                for batch in log.batches:
                    for record in read_records(batch):
                        if record.timestamp_ms >= position.timestamp_ms:
                            return record.offset
                return log.end
            case _:
                return position

    def _data(self, log: FakeLog, begin: int, bytes_max: int) -> bytes:
        data = b""
        for batch in log.batches:
            if batch.last_offset < begin:
                continue
            if data and len(data) + len(batch.data) > bytes_max:
                break
            data += bytes(batch.data)
        return data

    def _selected(
        self, log: FakeLog, begin: int, request: FetchRequest, wanted: TagSelection
    ) -> tuple[bytes, Offset]:
        """What has the wanted tags, and where to continue."""
        selection = Selection(Offset(begin), wanted, request.bytes_max)
        for batch in log.batches:
            if batch.last_offset >= begin and not selection.is_complete:
                selection.add(bytes(batch.data), Index(batch.last_offset))
        return selection.data, selection.next_offset

    async def _replicated(self, timeout_s: float) -> None:
        if self.append_delay_s:
            await asyncio.sleep(min(self.append_delay_s, timeout_s))
        if self.append_delay_s > timeout_s:
            raise CommitUnknown(f"not replicated within {timeout_s:g} s")

    async def _changed(self, log: FakeLog, timeout_s: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await log.changed.wait()
        except TimeoutError:
            return
        finally:
            self.waiting -= 1


SECRET = b"of a cluster for tests, 32 bytes"


@dataclass(slots=True)
class FakeCluster:
    """The services of one broker of three, and their state."""

    services: Services
    controller: FakeController
    gateway: FakeGateway
    checks: dict[str, bool]


def fake_cluster(
    limits: Limits | None = None, broker_count: int = 3, clock: TrustedClock | None = None
) -> FakeCluster:
    """A new cluster as broker 1; no address in it answers."""
    brokers = {
        NodeId(number): BrokerInfo(
            broker_id=NodeId(number),
            incarnation="a",
            http_url=f"http://127.0.0.1:{7069 + number}",
            rpc_host="127.0.0.1",
            rpc_port=9000 + number,
        )
        for number in range(1, broker_count + 1)
    }
    image = MetadataImage(cluster_id="test", brokers=brokers, version=1, feature_level=NEWEST)
    controller = FakeController(image, NodeId(1))
    clock = clock or SystemClock()
    gateway = FakeGateway(controller, clock)
    groups, group_offsets = instant_groups(controller, gateway, clock)
    transactions = instant_transactions(clock, groups)
    checks = {"controller_quorum": True}
    services = Services(
        broker_id=NodeId(1),
        controller=controller,
        topics=ConfirmedTopics(controller),
        gateway=gateway,
        log=gateway,
        admin=FakeAdmin(controller, gateway),
        groups=groups,
        group_offsets=group_offsets,
        transactions=transactions,
        one_shots=OneShots(NodeId(1), transactions),
        delayed=instant_delays(clock),
        clock=clock,
        producer_ids=ProducerIdCipher(b"of a cluster for tests"),
        join_tokens=JoinTokens(SECRET),
        rng=random.Random(7),
        version="0.1.0",
        health=HealthProbes(ready=lambda: checks),
        limits=limits or Limits(),
    )
    return FakeCluster(services, controller, gateway, checks)


def _before(log: FakeLog, header: BatchHeader) -> AppendReceipt | None:
    """The receipt of the same batch, if it is stored."""
    identity = (header.producer_id, header.producer_epoch, header.base_sequence)
    return log.by_sequence.get(identity) if header.is_sequenced else None


def _check_order(log: FakeLog, header: BatchHeader) -> None:
    """Raise ``OutOfOrderSequence`` for a batch behind a gap: requests may overtake one another."""
    epoch, following = log.newest.get(header.producer_id, (header.producer_epoch, header.base_sequence))
    expected = following if header.producer_epoch == epoch else 0
    if header.is_sequenced and header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}; the next one is {expected}",
            expected_sequence=expected,
        )


def _durability(acks: Acks, topic: TopicInfo) -> Durability:
    replicas = topic.replication_factor // 2 + 1
    if acks.kind is AcksKind.EVERY:
        replicas = topic.replication_factor
    elif acks.kind is AcksKind.COUNT:
        replicas = acks.count
    return Durability(
        acks=str(acks), committed=acks.kind is not AcksKind.LEADER, fsynced=True, replicas=replicas
    )


def _seen(batch: Batch) -> Collection[int]:
    """The offsets of the records of users; of a batch that cannot be decoded, all of them."""
    if batch.header.is_control:
        return ()
    try:
        return [record.offset for record in read_records(batch)]
    except CorruptBatch:
        return range(batch.base_offset, batch.last_offset + 1)
