"""Offsets of groups in transactions, in a cluster: what stays of them, and offsets that arrive late."""

from __future__ import annotations

from typing import Final

import pytest

from broker.settings import Groups
from groups.records import TOPIC
from groups.requests import AddOffsets, Commit, Done, OffsetCommit, Reply, Request
from groups.state import ROW_BYTES
from raftlog.errors import GroupNotFound, ProducerFenced, TransactionAborted, TransactionNotFound
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.simulated_brokers import Place
from tests.helpers.transactional import TransactionalProducer
from tests.helpers.virtual_time import eventually
from transactions.records import Handle
from transactions.requests import Join

TIMEOUT_MS: Final = 5_000
NAMES: Final = 60  # groups of one transaction
ROUNDS: Final = 3


class SmallState(ControlledBroker):
    """A broker with room for fewer rows of groups than one client names groups here."""

    group_settings = Groups(partitions=1).model_copy(
        update={"state_bytes_max": NAMES * ROUNDS * ROW_BYTES // 2}
    )


class SmallCluster(PartitionCluster):
    """Three brokers of the kind."""

    def new(self, place: Place) -> ControlledBroker:
        return SmallState(place, self.directory_of(place.node_id), None)


async def ask(cluster: PartitionCluster, request: Request) -> Reply:
    """Ask any broker."""
    return await cluster.any.groups.service.ask(request, timeout_ms=TIMEOUT_MS, creates=True)


def offsets_of(cluster: PartitionCluster, offset: int) -> tuple[OffsetCommit, ...]:
    """One of ``orders``."""
    topic_id = cluster.any.controller.image.topics["orders"].topic_id
    return (OffsetCommit(topic="orders", topic_id=topic_id, partition=0, offset=offset),)


def added(cluster: PartitionCluster, handle: Handle, *, group: str = "g", member: str = "") -> AddOffsets:
    """What a broker sends once the group has joined the transaction, however long that took."""
    return AddOffsets(
        group=group,
        offsets=offsets_of(cluster, 7),
        member_id=member,
        producer_id=handle.producer_id,
        epoch=handle.epoch,
        transaction=str(handle),
    )


# requirement: N2
@in_virtual_time_with(SmallCluster)
async def test_a_client_with_many_names_of_groups_takes_no_room_of_others(cluster: SmallCluster) -> None:
    """Each name joins a transaction, and the offsets are refused: of a member of no group."""
    await cluster.any.groups.service.ready(timeout_ms=TIMEOUT_MS)
    producer = await TransactionalProducer(cluster.any).open()
    for number in range(ROUNDS):
        for name in range(NAMES):
            group = f"name-{number}-{name}"
            await producer.ask(Join(transaction=producer.handle, groups=(group,)))
            with pytest.raises(GroupNotFound):
                await ask(cluster, added(cluster, producer.handle, group=group, member="m"))
        assert await producer.commit()
    other = Commit(group="other", offsets=offsets_of(cluster, 0), client="10.0.0.2")
    assert await ask(cluster, other) == Done()


# requirement: D3
@pytest.mark.parametrize("fails_over", [False, True])
@in_virtual_time_with(PartitionCluster)
async def test_offsets_that_arrive_behind_their_transaction_are_refused(
    cluster: PartitionCluster, fails_over: bool
) -> None:
    """Whoever coordinates the group by then, and however many transactions have ended since."""
    producer = await TransactionalProducer(cluster.any).open()
    await cluster.any.groups.service.ready(timeout_ms=TIMEOUT_MS)
    late = producer.handle
    await producer.ask(Join(transaction=late, groups=("g",)))
    assert not await producer.abort()
    if fails_over:
        new = next(broker for broker in cluster if not broker.groups.coordinators[0].is_coordinating)
        await cluster.lead(new.node_id, TOPIC)
    with pytest.raises(TransactionAborted):
        await ask(cluster, added(cluster, late))
    await producer.add_offset("g", 9)
    assert await producer.commit()
    with pytest.raises(ProducerFenced):
        await ask(cluster, added(cluster, late))
    view = await cluster.any.groups.offsets.view("g", timeout_ms=TIMEOUT_MS)
    assert ([offset.offset for _, _, offset in view.offsets], view.pending) == ([9], ())
    for broker in cluster:
        state = broker.groups.coordinators[0].state
        await eventually(lambda state=state: state.offsets and not state.transactions)


# requirement: D3
@in_virtual_time_with(PartitionCluster)
async def test_a_group_that_no_end_would_reach_keeps_no_offsets(cluster: PartitionCluster) -> None:
    producer = await TransactionalProducer(cluster.any).open()
    await producer.add_offset("g", 9)
    with pytest.raises(TransactionNotFound, match="has not joined"):
        await ask(cluster, added(cluster, producer.handle, group="other"))
    nobody = Handle("nobody", producer.handle.producer_id, 0)
    with pytest.raises(TransactionNotFound):
        await ask(cluster, added(cluster, nobody, group="other"))
    assert await producer.commit()
