"""When a partition asks the coordinator whether a transaction is open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from partitions.replica.participant import HeldBack, Participant, TransactionName
from partitions.replica.transaction_table import OpenTransaction, TransactionTable
from raftlog.errors import RecordTooLarge
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.manual_wall_clock import ManualWallClock

ORDERS = TopicPartition("orders", 0)
TRANSACTION = TransactionName(7, 0)


class Asked:
    """The way to the coordinator; its answers are given by the test."""

    def __init__(self) -> None:
        self.answers: list[asyncio.Future[None]] = []

    async def __call__(
        self, transactional_id: str, transaction: TransactionName, target: TopicPartition, timeout_ms: int
    ) -> None:
        """Waits for the answer."""
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]


async def joined(participant: Participant, asked: Asked, size_bytes: int = 1) -> bool:
    """Let the transaction join; whether the coordinator was asked, which agrees."""
    before = len(asked.answers)
    task = asyncio.create_task(participant.join(asked, "copy-1", TRANSACTION, ORDERS, 1_000, size_bytes))
    await asyncio.sleep(0)
    for answer in asked.answers[before:]:
        answer.set_result(None)
    await task
    return len(asked.answers) > before


@in_virtual_time
async def test_the_coordinator_is_asked_once_for_each_leader_and_transaction() -> None:
    # requirement: D3
    participant, asked = Participant(TransactionTable()), Asked()
    assert await joined(participant, asked)
    assert not await joined(participant, asked)
    participant.ended(TRANSACTION)
    assert await joined(participant, asked)
    participant.clear()
    assert await joined(participant, asked)


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda participant: participant.clear(),  # another leader may have written the marker
        lambda participant: participant.ended(TRANSACTION),
    ],
)
@in_virtual_time
async def test_an_answer_that_comes_after_the_marker_is_of_no_use(
    meanwhile: Callable[[Participant], None],
) -> None:
    # requirement: D3
    participant, asked = Participant(TransactionTable()), Asked()
    task = asyncio.create_task(participant.join(asked, "copy-1", TRANSACTION, ORDERS, 1_000, 1))
    await asyncio.sleep(0)
    meanwhile(participant)
    asked.answers[0].set_result(None)
    await task
    assert await joined(participant, asked)


@in_virtual_time
async def test_the_bytes_of_a_transaction_are_bounded() -> None:
    # requirement: D3
    participant, asked = Participant(TransactionTable(), bytes_max=10), Asked()
    assert await joined(participant, asked, 6)
    with pytest.raises(RecordTooLarge, match="more than 10 bytes in orders/0: commit it"):
        await joined(participant, asked, 5)
    assert not await joined(participant, asked, 4), "a smaller batch has room"
    with pytest.raises(RecordTooLarge):
        await joined(participant, asked, 1)
    participant.ended(TRANSACTION)
    assert await joined(participant, asked, 10)


def test_readers_wait_for_each_oldest_transaction_from_its_first_batch_on() -> None:
    clock = ManualWallClock()
    held = HeldBack(clock)
    waited_ms = []
    for oldest in (None, OpenTransaction(7, 0, 3), OpenTransaction(7, 0, 3), OpenTransaction(8, 0, 5), None):
        held.note(oldest)
        clock.now_ms += 500
        waited_ms.append(held.ms)
    assert waited_ms == [0, 500, 1_000, 500, 0]
