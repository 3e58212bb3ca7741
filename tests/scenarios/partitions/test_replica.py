"""One replica at work in a real Raft group: appends, reads and refusals."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from partitions.metadata.image import MetadataImage
from partitions.replica.producer_admission import ProducerAdmission
from partitions.replica.producer_table import EXPIRATION_MS
from partitions.replica.topic_rules import RECORDS_ON_LOOP_MAX
from partitions.values import QUORUM, AppendReceipt
from raftlog.errors import (
    CommitUnknown,
    CorruptBatch,
    InvalidRecord,
    InvalidRequest,
    NoLeader,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    Overloaded,
    QuotaExceeded,
    RaftlogError,
    RecordTooLarge,
    StorageFull,
)
from raftlog.records.batch import checksum, split_batches
from raftlog.records.control import Archived, Marker, Seal
from raftlog.records.reader import read_records
from raftlog.types import Offset, ProducerId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import (
    PRODUCER,
    PRODUCER_IDS,
    ControlledBroker,
    ControlledCluster,
    PartitionCluster,
)
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.orders import batch_of, fetch_from
from tests.helpers.virtual_time import VirtualLoop, eventually

# Produce.


@in_virtual_time_with(PartitionCluster)
async def test_offsets_count_records_from_zero(cluster: PartitionCluster) -> None:
    # requirement: T5
    leader = await cluster.leader()
    first = await leader.append(batch_of(b"a", b"b"))
    second = await leader.append(batch_of(b"c") + batch_of(b"d", b"e"))
    assert (first.base_offset, first.record_count) == (0, 2)
    assert (second.base_offset, second.record_count) == (2, 3)
    assert first.durability.committed
    assert first.durability.replicas >= 2


@in_virtual_time_with(PartitionCluster)
async def test_a_body_of_several_batches_is_appended_whole_or_not_at_all(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    torn = bytearray(batch_of(b"b"))
    torn[-1] ^= 1
    with pytest.raises(CorruptBatch):
        await leader.append(batch_of(b"a") + bytes(torn))
    with pytest.raises(OutOfOrderSequence):
        await leader.append(
            batch_of(b"a", producer=PRODUCER, sequence=0) + batch_of(b"b", producer=PRODUCER, sequence=5),
        )
    assert leader.orders.group.last_index == -1


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", InvalidRequest),
        (b"no batch", CorruptBatch),
        (batch_of(b"a")[:-1], CorruptBatch),
        (batch_of(b"a") + b"x", CorruptBatch),
        (batch_of(b"x" * 2_000), RecordTooLarge),
        (b"\0" * 7 + b"\1" + batch_of(b"a")[8:], InvalidRecord),
    ],
)
@in_virtual_time_with(lambda: PartitionCluster(config={"max.message.bytes": 1_024}))
async def test_bad_bodies_are_refused(
    cluster: PartitionCluster, body: bytes, error: type[InvalidRequest]
) -> None:
    # requirement: T8
    leader = await cluster.leader()
    with pytest.raises(error) as refused:
        await leader.append(body)
    if error is RecordTooLarge:
        assert refused.value.details["limit_bytes"] == 1_024
    assert leader.orders.group.last_index == -1


@in_virtual_time_with(PartitionCluster)
async def test_the_leader_stamps_the_append_time_and_only_that(cluster: PartitionCluster) -> None:
    # requirement: M2
    leader = await cluster.leader()
    receipt = await leader.append(batch_of(b"a", timestamp_ms=5))
    result = await leader.orders.fetch(fetch_from(0))
    (record,) = read_records(split_batches(result.data)[0])
    assert receipt.timestamp_ms == record.timestamp_ms
    assert record.timestamp_ms > 1_000_000_000_000


@in_virtual_time_with(lambda: PartitionCluster(config={"message.timestamp.type": "CreateTime"}))
async def test_a_topic_of_create_times_keeps_the_producers_bytes(cluster: PartitionCluster) -> None:
    # requirement: M2, L8
    leader = await cluster.leader()
    body = batch_of(b"a", timestamp_ms=5)
    receipt = await leader.append(body)
    result = await leader.orders.fetch(fetch_from(0))
    assert receipt.timestamp_ms is None
    assert bytes(result.data[16:]) == body[16:]


@in_virtual_time_with(lambda: PartitionCluster(config={"validate.records": "true"}))
async def test_deep_validation_opens_the_batch(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    await leader.append(batch_of(b"a", b"b"))
    lying = bytearray(batch_of(b"a", b"b"))
    struct.pack_into(">i", lying, 23, 2)
    struct.pack_into(">i", lying, 57, 3)
    struct.pack_into(">I", lying, 17, checksum(lying))
    with pytest.raises(CorruptBatch):
        await leader.append(bytes(lying))


# requirement: T4
@in_virtual_time_with(PartitionCluster)
async def test_a_batch_that_takes_long_to_check_is_not_overtaken(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    await leader.append(batch_of(b"first", producer=PRODUCER, sequence=0))
    many = [b"v"] * (RECORDS_ON_LOOP_MAX + 1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.thread_after_s = 0.2
    receipts = await asyncio.gather(
        leader.append(batch_of(*many, producer=PRODUCER, sequence=1)),
        leader.append(batch_of(b"next", producer=PRODUCER, sequence=1 + len(many))),
    )
    assert [receipt.base_offset for receipt in receipts] == [1, 1 + len(many)]


@in_virtual_time_with(PartitionCluster)
async def test_a_follower_refuses_and_names_the_leader(cluster: PartitionCluster) -> None:
    # requirement: RP2, P3
    leader = await cluster.leader()
    follower = cluster.followers(leader)[0]
    await eventually(lambda: follower.orders.group.leader == leader.node_id)
    with pytest.raises(NotLeader) as refused:
        await follower.append(batch_of(b"a"))
    assert refused.value.details["leader"] == leader.node_id
    with pytest.raises(NotLeader):
        await follower.orders.fetch(fetch_from(0))


async def test_too_few_replicas_in_sync_refuse_a_produce_early() -> None:
    # requirement: RP9
    config = {"min.insync.replicas": 3, "replica.lag.max.ms": 30}
    async with PartitionCluster(config=config) as cluster:
        leader = await cluster.leader()
        await leader.append(batch_of(b"a"))
        cluster.network.isolate(cluster.followers(leader)[0].node_id)
        await leader.append(batch_of(b"b"))
        replica = leader.orders
        await eventually(lambda: len(replica.in_sync()) == 2)
        end = replica.group.last_index
        with pytest.raises(NotEnoughReplicas) as refused:
            await leader.append(batch_of(b"c"))
        assert refused.value.retryable
        assert replica.group.last_index == end
        assert leader.node_id in replica.in_sync()
        cluster.network.heal_all()
        await eventually(lambda: len(replica.in_sync()) == 3)
        await leader.append(batch_of(b"c"))


# Idempotence.


@in_virtual_time_with(PartitionCluster)
async def test_a_retry_of_a_batch_in_flight_waits_for_the_same_outcome(cluster: PartitionCluster) -> None:
    # requirement: D3
    leader = await cluster.leader()
    for broker in cluster.brokers.values():
        broker.disk.clear()
    body = batch_of(b"a", producer=PRODUCER, sequence=0)
    tasks = [asyncio.create_task(leader.append(body)) for _ in range(3)]
    following = asyncio.create_task(leader.append(batch_of(b"b", producer=PRODUCER, sequence=1)))
    await asyncio.sleep(0.02)
    assert not any(task.done() for task in tasks)
    tasks[0].cancel()  # the first client hangs up; its retries must not feel it
    for broker in cluster.brokers.values():
        broker.disk.set()
    receipts = await asyncio.gather(*tasks[1:])
    assert [receipt.base_offset for receipt in receipts] == [0, 0]
    assert all(receipt.was_duplicate for receipt in receipts)
    assert (await following).base_offset == 1


@in_virtual_time_with(PartitionCluster)
async def test_a_batch_cut_off_with_its_leader_is_new_to_the_next_one(cluster: PartitionCluster) -> None:
    # requirement: D3
    leader = await cluster.leader()
    await leader.append(batch_of(b"a", producer=PRODUCER, sequence=0))
    cluster.network.isolate(leader.node_id)
    body = batch_of(b"b", producer=PRODUCER, sequence=1)
    with pytest.raises(CommitUnknown) as unknown:
        await leader.append(body)
    assert unknown.value.details["committed"] is None
    new = await cluster.leader(other_than=leader.node_id)
    receipt = await new.append(body)
    assert not receipt.was_duplicate
    cluster.network.heal_all()
    old = leader.orders
    await eventually(lambda: old.group.commit_index == new.orders.group.commit_index)
    assert old.machine.snapshot() == new.orders.machine.snapshot()
    result = await new.orders.fetch(fetch_from(0))
    users = [batch for batch in split_batches(result.data) if not batch.header.is_control]
    assert [record.value for batch in users for record in read_records(batch)] == [b"a", b"b"]


@in_virtual_time_with(PartitionCluster)
async def test_a_deposed_leader_never_says_that_a_batch_is_missing(cluster: PartitionCluster) -> None:
    # requirement: D3
    leader = await cluster.leader()
    await leader.append(batch_of(b"a", producer=PRODUCER, sequence=0))
    cluster.network.isolate(leader.node_id)
    assert leader.orders.group.is_leader  # it has not noticed yet
    with pytest.raises((NotLeader, NoLeader)):  # the next leader may have taken in sequence 1
        await leader.append(batch_of(b"c", producer=PRODUCER, sequence=2))


@in_virtual_time_with(PartitionCluster)
async def test_a_retry_finishes_a_request_that_is_stored_in_part(cluster: PartitionCluster) -> None:
    # requirement: D3
    leader = await cluster.leader()
    left, lost = (
        batch_of(b"a", producer=PRODUCER, sequence=0),
        batch_of(b"b", producer=PRODUCER, sequence=1),
    )
    await leader.append(left)
    await leader.append(batch_of(b"x"))
    for _ in range(2):
        with pytest.raises(CommitUnknown, match="all records are stored") as told:
            await leader.append(left + lost)
        assert told.value.details["committed"] is True
    assert leader.orders.group.last_index == 2
    assert (await leader.append(batch_of(b"c", producer=PRODUCER, sequence=2))).base_offset == 3


async def test_the_status_shows_a_lagging_replica_out_of_sync() -> None:
    # requirement: RP3
    config: dict[str, int | str] = {"replica.lag.max.records": 4}
    async with PartitionCluster(config=config) as cluster:
        leader = await cluster.leader()
        slow = cluster.followers(leader)[0]
        replica = leader.orders
        slow.disk.clear()
        await leader.append(batch_of(b"1", b"2", b"3"))
        assert slow.node_id in replica.status().in_sync  # three behind is in sync
        await leader.append(batch_of(b"4"))  # and a slow minority blocks no commit
        assert slow.node_id not in replica.status().in_sync
        assert leader.node_id in replica.status().in_sync
        slow.disk.set()
        await eventually(lambda: slow.node_id in replica.status().in_sync)
        status = replica.status()
        assert (status.commit_index, status.high_watermark, status.log_end_offset) == (3, 4, 4)
        assert status.replicas == (1, 2, 3)


class Metadata:
    """Metadata that is behind; ``allocated`` is what the active controller knows, if it answers."""

    def __init__(self, known: int, allocated: int | None) -> None:
        self.image = MetadataImage(next_producer_id=ProducerId(known))
        self.allocated = allocated
        self.asked = 0

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Nothing comes."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        self.asked += 1
        if self.allocated is None:
            raise NoLeader("the active controller did not answer")
        return MetadataImage(next_producer_id=ProducerId(self.allocated))


async def send(
    leader: ControlledBroker, producer: int, sequence: int = 0, partition: int = 0
) -> AppendReceipt:
    return await leader.manager.replicas["orders", partition].append(
        batch_of(b"v", producer=producer, sequence=sequence), acks=QUORUM, timeout_ms=2000
    )


# requirement: D3
@in_virtual_time_with(ControlledCluster)
async def test_an_id_that_was_never_allocated_is_refused(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    leader = await cluster.leader()
    numbers = await leader.controller.allocate_producer_ids(2, 5000)
    for unknown in (PRODUCER_IDS.id_of(numbers.stop), numbers.start, (1 << 63) - 1):
        with pytest.raises(InvalidRequest, match=f"{unknown} was never allocated") as refused:
            await send(leader, unknown)
        assert refused.value.details["field"] == "producer_id"
    assert (await send(leader, PRODUCER_IDS.id_of(numbers.stop - 1))).base_offset == 0


# requirement: D3
async def test_a_broker_whose_metadata_is_behind_asks_before_it_refuses() -> None:
    metadata = Metadata(known=1000, allocated=1003)
    admission = ProducerAdmission(metadata, lambda: (), ManualWallClock(), PRODUCER_IDS)
    known, new, unknown = map(PRODUCER_IDS.id_of, (999, 1002, 1003))
    await admission.admit({known}, 100)
    assert metadata.asked == 0
    await admission.admit({known, new}, 100)
    assert metadata.asked == 1
    with pytest.raises(InvalidRequest):
        await admission.admit({known, unknown}, 100)
    metadata.allocated = None
    with pytest.raises(NoLeader) as refused:
        await admission.admit({new}, 100)
    assert refused.value.retryable


# requirement: D3
@in_virtual_time_with(ControlledCluster)
async def test_a_leader_whose_configuration_is_behind_asks_before_it_refuses(
    cluster: ControlledCluster,
) -> None:
    await cluster.create("orders")
    await cluster.configure("orders", {"max.message.bytes": 10_000})
    controlling = await cluster.controller_broker()
    leader = next(broker for broker in cluster if broker is not controlling)
    await cluster.lead(leader.node_id)
    large = batch_of(b"x" * 40_000)
    with pytest.raises(RecordTooLarge):
        await leader.append(large)
    await controlling.controller.alter_config(
        "orders", {"max.message.bytes": 100_000}, expected_version=None, timeout_ms=5000
    )
    assert (await leader.append(large)).record_count == 1


# requirement: N2
async def test_one_address_adds_a_quarter_of_the_producers_and_others_add_theirs() -> None:
    metadata, clock = Metadata(known=20, allocated=20), ManualWallClock()
    ids = [*map(PRODUCER_IDS.id_of, range(20))]
    admission = ProducerAdmission(metadata, lambda: (), clock, PRODUCER_IDS, producers_max=16)
    for one in ids[:4]:
        await admission.admit({one}, 100, "10.0.0.1")
    with pytest.raises(QuotaExceeded, match=r"reuse producers") as refused:
        await admission.admit({ids[4]}, 100, "10.0.0.1")
    await admission.admit({*ids[5:9]}, 100, "10.0.0.2")
    await admission.admit({*ids[9:11]}, 100, "")  # those of brokers have no share
    assert refused.value.details["retry_after_ms"] == EXPIRATION_MS // 4, "four in a day"
    clock.now_ms += EXPIRATION_MS // 4 - 1_000
    with pytest.raises(QuotaExceeded):
        await admission.admit({ids[4]}, 100, "10.0.0.1")
    clock.now_ms += 1_000
    await admission.admit({ids[4]}, 100, "10.0.0.1")


# requirement: N2
@in_virtual_time_with(lambda: ControlledCluster(brokers=1))
async def test_a_bound_of_producers_refuses_only_new_ones(cluster: ControlledCluster) -> None:
    await cluster.create("orders", partitions=2, factor=1)
    leader = cluster.any
    for partition in range(2):
        await cluster.leader(partition=partition)
    leader.manager.admission._producers_max = 3
    ids = [*map(PRODUCER_IDS.id_of, await leader.controller.allocate_producer_ids(3, 5000))]
    for partition in range(2):
        await send(leader, ids[0], partition=partition)
    await send(leader, ids[1])
    with pytest.raises(Overloaded, match="producers_max") as refused:
        await send(leader, ids[2])
    assert refused.value.is_definite
    assert refused.value.details["retry_after_ms"]
    await send(leader, ids[0], sequence=1)
    assert leader.manager.admission.remembered == 3


@pytest.mark.parametrize(
    "changed", [{"max.message.bytes": 1024}, {"cleanup.policy": "compact"}], ids=["smaller", "keys"]
)
@in_virtual_time_with(PartitionCluster)
async def test_a_batch_that_is_stored_is_known_whatever_the_rules_say_now(
    cluster: PartitionCluster, changed: dict[str, int | str]
) -> None:
    # requirement: D2
    leader = await cluster.leader()
    stored = batch_of(b"x" * 2_000, producer=PRODUCER, sequence=0)
    receipt = await leader.append(stored)
    await cluster.configure("orders", changed)
    again = await leader.append(stored)
    assert again.was_duplicate
    assert again.base_offset == receipt.base_offset
    with pytest.raises(InvalidRequest):
        await leader.append(batch_of(b"y" * 2_000, producer=PRODUCER, sequence=1))
    with pytest.raises(InvalidRequest):
        await leader.append(batch_of(b"y" * 2_000))


@in_virtual_time_with(PartitionCluster)
async def test_a_batch_that_is_stored_is_known_with_too_few_replicas(cluster: PartitionCluster) -> None:
    # requirement: D2
    leader = await cluster.leader()
    stored = batch_of(b"x", producer=PRODUCER, sequence=0)
    await leader.append(stored)
    await cluster.configure("orders", {"min.insync.replicas": 3})
    await cluster.stop(cluster.followers(leader)[0].node_id)
    await eventually(lambda: len(leader.orders.in_sync()) == 2, within_s=60)
    assert (await leader.append(stored)).was_duplicate
    with pytest.raises(NotEnoughReplicas):
        await leader.append(batch_of(b"y", producer=PRODUCER, sequence=1))


async def fewer_in_sync(cluster: PartitionCluster, leader: ControlledBroker) -> None:
    await cluster.configure("orders", {"min.insync.replicas": 3})
    await cluster.stop(cluster.followers(leader)[0].node_id)
    await eventually(lambda: len(leader.orders.in_sync()) == 2, within_s=60)


async def smaller(cluster: PartitionCluster, leader: ControlledBroker) -> None:
    await cluster.configure("orders", {"max.message.bytes": 1024})


async def full(cluster: PartitionCluster, leader: ControlledBroker) -> None:
    leader.has_room = False


async def busy(cluster: PartitionCluster, leader: ControlledBroker) -> None:
    leader.orders.group._recent._shared.bytes_max = -1


@pytest.mark.parametrize(
    ("change", "refusal"),
    [(fewer_in_sync, NotEnoughReplicas), (smaller, RecordTooLarge), (full, StorageFull), (busy, Overloaded)],
)
@in_virtual_time_with(PartitionCluster)
async def test_a_request_that_is_stored_in_part_is_never_refused_for_good(
    cluster: PartitionCluster,
    change: Callable[[PartitionCluster, ControlledBroker], Awaitable[None]],
    refusal: type[RaftlogError],
) -> None:
    # requirement: D2
    leader = await cluster.leader()
    left, lost = (
        batch_of(b"a", producer=PRODUCER, sequence=0),
        batch_of(b"x" * 2_000, producer=PRODUCER, sequence=1),
    )
    await leader.append(left)
    await change(cluster, leader)
    with pytest.raises(refusal):
        await leader.append(lost)
    with pytest.raises(CommitUnknown, match="the first batches are stored"):
        await leader.append(left + lost)
    assert (await leader.append(left)).was_duplicate


@in_virtual_time_with(PartitionCluster)
async def test_what_is_not_committed_in_time_is_told_so(cluster: PartitionCluster) -> None:
    leader = await cluster.leader()
    orders = leader.orders
    await leader.append(batch_of(b"a"))
    for follower in cluster.followers(leader):
        follower.disk.clear()
    orders.want_seal(Seal(is_sealed=True, version=1_000), 1)
    for work in (
        orders.mark(Marker(PRODUCER, 0, is_commit=True, coordinator_epoch=1, log_start=0), timeout_ms=200),
        orders.delete_before(Offset(1), timeout_ms=200),
        orders.set_archived(Archived(1), timeout_ms=200),
        orders.settle_seal(200),
    ):
        async with asyncio.timeout(1):
            with pytest.raises((CommitUnknown, NoLeader)):
                await work
