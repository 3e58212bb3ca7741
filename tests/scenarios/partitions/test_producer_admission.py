"""Which producers a leader takes: those whose id was allocated, while the broker can remember them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from partitions.metadata.image import MetadataImage
from partitions.replica.producer_admission import ProducerAdmission
from partitions.values import QUORUM, AppendReceipt
from raftlog.errors import InvalidRequest, NoLeader, Overloaded
from raftlog.types import ProducerId
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.controlled_cluster import PRODUCER_IDS, ControlledBroker, ControlledCluster
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.orders import batch_of


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
@in_virtual_time
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
