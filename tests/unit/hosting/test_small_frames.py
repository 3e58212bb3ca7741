"""A coordinator whose frames carry little: what it appends fits them, or the request is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from raftlog.errors import InvalidRequest
from raftlog.node.frame_limits import FrameLimits
from raftlog.records.batch import Batch
from tests.helpers.instant_groups import InstantLog
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.manual_wall_clock import ManualWallClock
from transactions.coordinator import TransactionCoordinator
from transactions.records import Handle
from transactions.requests import AbortBatch, AbortOpen, CommitBatch, Done, Join, Open, Prepare

LIMITS = FrameLimits(write_bytes_max=8_000, writes_bytes_max=2_500, decision_bytes_max=5_000)
GROUPS = tuple(f"{number}".rjust(100, "-") for number in range(9))
ROW_BYTES = 1_000  # of a transaction with these groups
TIMEOUT_MS = 1_000


class SizedLog(InstantLog):
    """Notes the size of each batch."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        super().__init__(coordinator)
        self.sizes: list[int] = []

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append and apply."""
        self.sizes += [len(batch.data) for batch in batches]
        return super().propose(batches, frees_room=frees_room)


def leading() -> tuple[TransactionCoordinator, SizedLog]:
    coordinator = TransactionCoordinator(
        "t/0",
        ManualWallClock(),
        InstantMarkers(),
        id_retention_ms=1 << 40,
        key_retention_ms=1 << 40,
        frame_limits=LIMITS,
    )
    log = SizedLog(coordinator)
    coordinator.leads(log)
    return coordinator, log


async def prepared(coordinator: TransactionCoordinator, count: int) -> tuple[Handle, ...]:
    """Transactions of the tasks of a sink."""
    handles = tuple(Handle(f"sink~{task}", 5 + task, 0) for task in range(count))
    for handle in handles:
        name, number = handle.transactional_id, handle.producer_id
        opening = Open(transactional_id=name, timeout_ms=60_000, new_producer_id=number)
        await coordinator.ask(opening, TIMEOUT_MS)
        await coordinator.ask(Join(transaction=handle, groups=GROUPS), TIMEOUT_MS)
        await coordinator.ask(Prepare(transaction=handle, prepared_ms_max=60_000), TIMEOUT_MS)
    return handles


# requirement: N2
async def test_decisions_are_split_by_bytes() -> None:
    coordinator, log = leading()
    handles = await prepared(coordinator, 12)
    log.sizes.clear()
    assert await coordinator.ask(AbortBatch(key="sink", handles=handles), TIMEOUT_MS) == Done()
    assert 2 * ROW_BYTES < max(log.sizes) < LIMITS.writes_bytes_max + ROW_BYTES
    coordinator.leads(None)


# requirement: N2
async def test_a_batch_that_no_frame_carries_is_refused_alone() -> None:
    """A request that arrives with it is answered, and the rest of the batch can be committed."""
    coordinator, log = leading()
    handles = await prepared(coordinator, 6)
    aborting = asyncio.create_task(coordinator.ask(AbortOpen(transactional_id="sink~5"), TIMEOUT_MS))
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest, match="more than 5000") as refusal:
        await coordinator.ask(CommitBatch(key="sink", sequence=1, handles=handles[:5]), TIMEOUT_MS)
    assert refusal.value.is_definite
    assert await aborting == Done()
    assert (
        await coordinator.ask(CommitBatch(key="sink", sequence=1, handles=handles[:4]), TIMEOUT_MS) == Done()
    )
    assert 4 * ROW_BYTES < max(log.sizes) < LIMITS.write_bytes_max
    coordinator.leads(None)
