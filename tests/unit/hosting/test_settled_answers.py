"""Which answers of the coordinator of transactions wait for which appends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from raftlog.records.batch import Batch
from tests.helpers.instant_transactions import InstantMarkers
from tests.helpers.manual_wall_clock import ManualWallClock
from transactions.coordinator import TransactionCoordinator
from transactions.records import Handle, Participant
from transactions.requests import End, Ended, Join, Open

ORDERS: Participant = ("orders", 0)
HANDLE = Handle("copy-1", 5, 0)


class Log:
    """Appends that the test ends."""

    leader_epoch = 1
    has_room = True

    def __init__(self) -> None:
        self.appends: list[asyncio.Future[None]] = []

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Not ended yet."""
        self.appends.append(asyncio.get_running_loop().create_future())
        return self.appends[-1]

    async def confirm(self) -> None:
        """It leads."""


async def test_a_commit_waits_for_its_decision_and_its_markers_alone() -> None:
    log, markers = Log(), InstantMarkers()
    coordinator = TransactionCoordinator(
        "t/0", ManualWallClock(), markers, id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    coordinator.leads(log)
    asked = (
        Open(transactional_id="copy-1", timeout_ms=60_000, new_producer_id=5),
        Join(transaction=HANDLE, partitions=(ORDERS,)),
        End(transaction=HANDLE, is_commit=True),
    )
    answers = []
    for number, request in enumerate(asked):
        waiting = asyncio.create_task(coordinator.ask(request, 60_000))
        await asyncio.sleep(0.001)
        assert (len(log.appends), waiting.done(), markers.written) == (number + 1, False, [])
        log.appends[-1].set_result(None)
        answers.append(await waiting)
    assert answers[-1] == Ended(is_committed=True, next_epoch=1)
    assert markers.written == [ORDERS]
    assert len(log.appends) == 4, "that it is complete"
    assert not log.appends[-1].done()
    coordinator.leads(None)


async def test_the_end_of_a_transaction_without_records_waits_for_its_record() -> None:
    log = Log()
    coordinator = TransactionCoordinator(
        "t/0", ManualWallClock(), InstantMarkers(), id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    coordinator.leads(log)
    opening = asyncio.create_task(
        coordinator.ask(Open(transactional_id="copy-1", timeout_ms=60_000, new_producer_id=5), 60_000)
    )
    await asyncio.sleep(0.001)
    log.appends[-1].set_result(None)
    await opening
    for _ in range(2):  # a repetition, too
        ending = asyncio.create_task(coordinator.ask(End(transaction=HANDLE, is_commit=True), 60_000))
        await asyncio.sleep(0.001)
        assert not ending.done(), "its epoch may still be lost"
    log.appends[-1].set_result(None)
    assert await ending == Ended(is_committed=True, next_epoch=1)
    coordinator.leads(None)
