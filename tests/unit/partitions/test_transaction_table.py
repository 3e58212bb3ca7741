"""The transaction table of a partition, and how a partition's state is stored."""

from __future__ import annotations

import random
import struct

import pytest

from partitions.replica.machine import PartitionMachine
from partitions.replica.transaction_table import TransactionTable
from raftlog.errors import InvariantViolated
from raftlog.records.batch import Batch, split_batches, stamp
from raftlog.records.builder import with_producer
from raftlog.records.control import Marker, marker_batch, marker_in
from raftlog.types import Offset
from tests.helpers.orders import batch_of


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

    def restore(self, snapshot: bytes) -> None:
        """Become it."""
        self.count = int(snapshot or b"0")

    def leads(self, log: object) -> None:
        """It writes nothing."""


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
