"""A replica's view of transactions, of positions and of readers that wait."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from functools import partial

import pytest

from partitions.replica import positions
from partitions.replica.fetch_waiters import FetchWaiters
from partitions.replica.machine import PartitionMachine
from partitions.replica.participant import HeldBack, Participant, TransactionName
from partitions.replica.positions import NewestRecords, at_time, timestamp_at
from partitions.replica.transaction_table import OpenTransaction, TransactionTable
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated, RecordTooLarge
from raftlog.records.aborted import AbortedRange, AbortedRanges
from raftlog.records.batch import Batch, Codec, checksum, split_batches, stamp
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.compaction import retain
from raftlog.records.control import Marker, marker_batch, marker_in
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Index, Offset, Term, TopicPartition
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.orders import batch_of
from tests.helpers.profiled import opcodes_of
from tests.helpers.storage_batches import leader_change

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


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_waiter_is_woken_when_its_index_is_committed_and_not_before() -> None:
    # requirement: C3
    waiters = FetchWaiters()
    tasks = {index: asyncio.create_task(waiters.wait(Index(index))) for index in (5, 7, 7, 9)}
    await turns()
    waiters.advance(Index(4))
    await turns()
    assert not any(task.done() for task in tasks.values())
    waiters.advance(Index(8))
    await turns()
    assert [index for index, task in tasks.items() if task.done()] == [5, 7]
    waiters.wake_all()
    await asyncio.gather(*tasks.values())
    assert len(waiters) == 0


async def test_a_cancelled_waiter_is_freed_at_once() -> None:
    waiters = FetchWaiters()
    stays = asyncio.create_task(waiters.wait(Index(5)))
    leaves = asyncio.create_task(waiters.wait(Index(5)))
    await turns()
    leaves.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaves
    assert len(waiters) == 1
    waiters.advance(Index(5))
    await stays
    assert len(waiters) == 0


async def test_a_waiter_that_is_woken_and_cancelled_in_one_turn_is_counted_once() -> None:
    waiters = FetchWaiters()
    task = asyncio.create_task(waiters.wait(Index(5)))
    await turns()
    waiters.advance(Index(5))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    task = asyncio.create_task(waiters.wait(Index(6)))
    await turns()
    task.cancel()
    waiters.advance(Index(6))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waiters) == 0


def test_waiters_are_freed_by_cancelling_and_by_waking_at_a_cost_of_their_own() -> None:
    async def story(count: int) -> None:
        waiters = FetchWaiters()
        tasks = [asyncio.create_task(waiters.wait(Index(number % 3))) for number in range(count)]
        await turns()
        assert len(waiters) == count
        for task in tasks[: count // 2]:
            task.cancel()
        waiters.advance(Index(2))
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(waiters) == 0

    few, many = (opcodes_of(partial(asyncio.run, story(count))) for count in (300, 3_000))
    assert many < 11 * few


WALL_MS = 1_700_000_000_000


# requirement: M2
def test_a_time_is_that_of_a_users_record_and_no_other_has_one() -> None:
    """A change of leaders has the time of the wall, and the records around it those of their producers."""
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    for first, timestamp_ms in enumerate((100, 200, 300)):
        log.append([leader_change(2 * first, WALL_MS)])
        body = batch_of(b"value", timestamp_ms=timestamp_ms)
        log.append([stamp(body, base_offset=2 * first + 1, leader_epoch=1, append_time_ms=None)])
    end = Index(5)
    found = {wanted: at_time(log, Index(0), end, wanted) for wanted in (50, 100, 101, 250, 301, WALL_MS)}
    assert found == {50: 1, 100: 1, 101: 3, 250: 5, 301: None, WALL_MS: None}
    assert [timestamp_at(log, end, Offset(at)) for at in range(7)] == [None, 100, None, 200, None, 300, None]
    assert timestamp_at(log, end, Offset(log.first_index)) is None


def test_a_time_passes_over_records_that_its_reader_does_not_get() -> None:
    """Deleted ones, also of a half deleted batch; compacted ones; those of aborted transactions."""
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    times = [(5, 90), (10, 10), (95, 20), (96, 30), (80, 40)]
    for base, (first, second) in enumerate(times):
        records = [Record(b"1", timestamp_ms=first), Record(b"2", timestamp_ms=second)]
        body = build_batch(records, codec=Codec.NONE, timestamp_ms=0)
        if base == 3:
            body = with_producer(body, 7, 0, 0, in_transaction=True)
        batch = stamp(body, base_offset=2 * base, leader_epoch=1, append_time_ms=None)
        if base == 2:  # a producer's batch keeps its max timestamp
            batch = retain(Batch(batch.data, batch.header._replace(producer_id=8)), {5})
        log.append([batch])
    aborted = AbortedRanges([AbortedRange(7, 6, 7)])
    end = Index(9)
    assert at_time(log, Index(1), end, 70, aborted) == 1
    assert at_time(log, Index(2), end, 70, aborted) == 8
    assert at_time(log, Index(2), end, 70) == 6
    assert at_time(log, Index(9), end, 70, aborted) is None
    assert timestamp_at(log, end, Offset(6)) == 96
    assert timestamp_at(log, end, Offset(6), aborted) is None


def test_beyond_the_bound_of_a_search_offsets_count_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    # requirement: C2
    monkeypatch.setattr(positions, "LOOKED_BACK_BATCHES_MAX", 5)
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    for offset in range(10):
        log.append([data(offset, producer=1)])
    hidden = AbortedRanges([AbortedRange(1, 6, 9)])
    for count, first in ((1, 5), (3, 3), (20, -14)):
        search = NewestRecords(count, Index(9), hidden)
        search.look(log)
        assert (search.is_complete, search.offset) == (True, first)


def test_a_batch_that_is_no_records_has_a_place_and_a_time() -> None:
    log = MemoryLog()
    log.save_hard_state(HardState(Term(1), None))
    body = bytearray(batch_of(b"value", timestamp_ms=200))
    body[61:64] = b"\xff" * 3
    body[17:21] = checksum(body).to_bytes(4, "big")
    log.append([stamp(body, base_offset=0, leader_epoch=1, append_time_ms=None)])
    assert at_time(log, Index(0), Index(0), 150) == 0
    assert timestamp_at(log, Index(0), Offset(0)) == 200


def data(offset: int, producer: int, epoch: int = 0) -> Batch:
    body = with_producer(batch_of(b"v"), producer, epoch, 0, in_transaction=True)
    return stamp(body, base_offset=Offset(offset), leader_epoch=1, append_time_ms=None)


def marker(offset: int, producer: int, *, epoch: int = 0, is_commit: bool = True, start: int = 0) -> Batch:
    batch = marker_batch(Marker(producer, epoch, is_commit, 7, start), timestamp_ms=5)
    return stamp(batch.data, base_offset=Offset(offset), leader_epoch=1, append_time_ms=None)


def table_of(*batches: Batch) -> TransactionTable:
    table = TransactionTable()
    for batch in batches:
        table.apply(batch)
    return table


def test_a_marker_comes_back_as_it_was_written() -> None:
    found = marker_in(marker(3, 9, epoch=4, is_commit=False, start=2))
    assert found == Marker(9, 4, False, 7, 2)
    assert marker_in(data(0, 9)) is None


def test_the_oldest_open_transaction_holds_the_last_stable_offset() -> None:
    # requirement: D3
    batches = [data(0, 1), data(1, 2), data(2, 1), marker(3, 1), data(4, 3), marker(5, 2)]
    stable = [table_of(*batches[: count + 1]).last_stable_offset(count + 1) for count in range(6)]
    assert stable == [0, 0, 0, 1, 1, 4]
    assert table_of(*batches, marker(6, 3)).last_stable_offset(7) == 7


def hidden(table: TransactionTable, *batches: Batch) -> list[int]:
    """The offsets of batches that readers of committed records do not see."""
    shown = split_batches(table.without_aborted(b"".join(batch.data for batch in batches)))
    return [batch.base_offset for batch in shown if batch.header.is_gap]


def test_batches_of_aborted_transactions_are_found_one_by_one() -> None:
    # requirement: D3
    batches = [
        data(0, 1),
        data(1, 2),
        marker(2, 2, is_commit=False),
        data(3, 2, 1),
        marker(4, 1, is_commit=False),
        marker(5, 2, epoch=1),
        data(6, 2, 2),
        data(7, 1, 1),
        marker(8, 2, epoch=2, is_commit=False),
    ]
    assert hidden(table_of(*batches), *batches) == [0, 1, 6]


def test_a_marker_of_a_transaction_without_batches_changes_nothing() -> None:
    assert not table_of(marker(0, 1, is_commit=False)).aborted()
    still = table_of(data(0, 1, epoch=5), marker(1, 1, epoch=4))
    assert still.is_open(1)  # a marker of an earlier one


def test_a_transaction_without_a_marker_is_aborted_by_the_next_one_of_its_producer() -> None:
    # requirement: D3
    batches = [data(0, 1), data(1, 1, 1), marker(2, 1, epoch=1)]
    assert hidden(table_of(*batches), *batches) == [0]
    batches = [data(0, 1), marker(1, 1, epoch=1)]  # the next one has written nothing here
    assert hidden(table_of(*batches), *batches) == [0]


def test_ranges_are_forgotten_below_the_log_start_that_a_marker_tells() -> None:
    batches = [data(0, 1), marker(1, 1, is_commit=False), data(2, 1, 1)]
    table = table_of(*batches, marker(3, 1, epoch=1, is_commit=False, start=2))
    assert table.known_from == 2
    assert [each.first_offset for each in table.aborted()] == [2]
    assert hidden(table, *batches) == [2]


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_and_the_rest_of_the_log_give_the_same_table(seed: int) -> None:
    rng = random.Random(seed)
    epochs = dict.fromkeys(range(4), 0)
    batches: list[Batch] = []
    for offset in range(60):
        producer = rng.randrange(4)
        if rng.random() < 0.6:
            batches.append(data(offset, producer, epochs[producer]))
            continue
        is_commit, start = rng.random() < 0.5, rng.randrange(offset + 1)
        batches.append(marker(offset, producer, epoch=epochs[producer], is_commit=is_commit, start=start))
        epochs[producer] += 1
    cut = rng.randrange(60)
    whole, again = table_of(*batches), TransactionTable()
    again.restore(table_of(*batches[:cut]).snapshot())
    for batch in batches[cut:]:
        again.apply(batch)
    assert again.snapshot() == whole.snapshot()
    assert hidden(again, *batches) == hidden(whole, *batches)


class Counted:
    """A derived state."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entry: Batch) -> None:
        """Count it."""
        self.count += 1

    def snapshot(self) -> bytes:
        """The number."""
        return b"%d" % self.count

    def snapshot_pieces(self) -> tuple[bytes]:
        """The number."""
        return (self.snapshot(),)

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Become it."""
        return lambda: setattr(self, "count", int(snapshot or b"0"))

    def leads(self, log: object) -> None:
        """Write nothing."""


def test_a_partition_is_restored_with_its_transactions_and_its_derived_state() -> None:
    first, second = PartitionMachine(Counted()), PartitionMachine(Counted())
    for batch in (data(0, 1), data(1, 2), marker(2, 1, is_commit=False)):
        first.apply(batch)
    second.restore(first.snapshot())
    assert second.snapshot() == first.snapshot()
    assert second.transactions.is_open(2)
    second.restore(b"")
    assert second.snapshot() == PartitionMachine(Counted()).snapshot()


def test_states_of_earlier_releases_are_understood() -> None:
    plain, grouped = PartitionMachine(), PartitionMachine(Counted())
    for machine in (plain, grouped):
        machine.apply(data(0, 1))
    producers = plain.producers.snapshot()
    restored = PartitionMachine()
    restored.restore(producers)
    assert 1 in restored.producers
    assert len(restored.transactions) == 0
    derived = PartitionMachine(Counted())
    derived.restore(struct.pack(">I", len(producers)) + producers + b"7")
    assert 1 in derived.producers
    assert derived.snapshot().endswith(b"7")
    parts = [producers, plain.transactions.snapshot(), b"7"]
    derived.restore(b"\x03" + b"".join(struct.pack(">I", len(part)) + part for part in parts))
    assert 1 in derived.producers
    assert derived.transactions.is_open(1)
    assert derived.log_start.offset == 0
    assert derived.snapshot().endswith(b"7")
    with pytest.raises(InvariantViolated):
        PartitionMachine().restore(b"\xff")
