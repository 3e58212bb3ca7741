"""The checks of transactions over whole brokers see what they must see."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.control import Marker, marker_batch
from transactions.records import Handle, Sink, SinkKey, State, Transaction, TransactionKey
from verification.simulator.log_view import Entry
from verification.simulator.network import NEAR
from verification.simulator.originals import Original
from verification.simulator.result import Broken
from verification.simulator.scenarios.transactions.decided import ONE_OUTCOME, Decided, Row
from verification.simulator.scenarios.transactions.partition_log import FENCED, Aborted, PartitionLog
from verification.simulator.scenarios.transactions.sink_log import IN_ORDER, WHOLE, Batch
from verification.simulator.scenarios.transactions.wide_odds import WideOdds

ORDERS = ("orders", 0)


def batch(base: int, producer_id: int, epoch: int) -> Original:
    """One record of a transaction, or of none."""
    data = build_batch([Record(value=b"a")], codec=Codec.NONE, timestamp_ms=0)
    if producer_id >= 0:
        data = with_producer(data, producer_id, epoch, -1, in_transaction=True)
    (found,) = split_batches(data)
    return Original(Entry(base, base, 1, 0), 0, found.header._replace(base_offset=base), ())


def marker(base: int, producer_id: int, epoch: int, *, is_commit: bool, log_start: int = 0) -> Original:
    """The end of a transaction."""
    end = Marker(producer_id, epoch, is_commit, 1, log_start)
    header = marker_batch(end, timestamp_ms=0).header._replace(base_offset=base)
    return Original(Entry(base, base, 1, 0), 0, header, (), end)


def log_of(*batches: Original) -> PartitionLog:
    """A partition with these batches."""
    log = PartitionLog("orders/0")
    for one in batches:
        log.take(one)
    return log


def test_a_partition_is_stable_up_to_its_oldest_open_transaction() -> None:
    log = log_of(batch(0, -1, -1), batch(1, 7, 0), batch(2, 8, 0), marker(3, 7, 0, is_commit=True))
    assert [log.stable[applied] for applied in range(4)] == [1, 1, 1, 2]
    assert [log.outcome_at(base) for base in range(4)] == [True, True, None, True]


def test_aborted_ranges_are_forgotten_below_the_log_start_of_a_marker() -> None:
    log = log_of(
        batch(0, 7, 0),
        marker(1, 7, 0, is_commit=False),
        batch(2, 7, 1),
        marker(3, 7, 1, is_commit=False, log_start=2),
    )
    assert [log.known_from_at(applied) for applied in range(4)] == [0, 0, 0, 2]
    assert log.aborted_at(2) == [Aborted(7, 0, 1)]
    assert log.aborted_at(3) == [Aborted(7, 2, 3)]


@pytest.mark.parametrize(
    "late", [batch(2, 7, 0), marker(2, 7, 0, is_commit=True), marker(2, 7, 0, is_commit=False)]
)
def test_nothing_of_a_transaction_follows_its_marker(late: Original) -> None:
    with pytest.raises(Broken, match=FENCED):
        log_of(batch(0, 7, 0), marker(1, 7, 0, is_commit=True), late)


def test_a_producer_has_one_transaction_open_in_a_partition() -> None:
    with pytest.raises(Broken, match=FENCED):
        log_of(batch(0, 7, 0), batch(1, 7, 1))


def row(epoch: int, state: State, **more: object) -> Row:
    """What the coordinator stores of the id ``copy``."""
    value = Transaction(producer_id=7, epoch=epoch, state=state, **more)  # type: ignore[arg-type]
    return TransactionKey("sink~1"), value


@pytest.mark.parametrize(
    ("rows", "invariant"),
    [
        ([row(0, State.PREPARE_COMMIT), row(0, State.PREPARE_ABORT)], ONE_OUTCOME),
        ([row(0, State.PREPARE_ABORT), row(0, State.ONGOING)], ONE_OUTCOME),
        ([row(0, State.ONGOING), row(1, State.ONGOING)], ONE_OUTCOME),
        ([row(1, State.EMPTY), row(0, State.EMPTY)], ONE_OUTCOME),
        ([row(0, State.ONGOING, partitions=(ORDERS,)), row(0, State.PREPARE_ABORT)], ONE_OUTCOME),
        ([row(0, State.PREPARED), row(0, State.PREPARED, partitions=(ORDERS,))], ONE_OUTCOME),
        ([row(0, State.PREPARED), row(0, State.ONGOING)], ONE_OUTCOME),
        ([row(0, State.ONGOING), row(0, State.PREPARE_COMMIT, groups=("g",))], ONE_OUTCOME),
        ([row(0, State.ONGOING), row(0, State.ONGOING, timeout_ms=1)], ONE_OUTCOME),
        ([row(0, State.COMPLETE), row(2, State.ONGOING)], ONE_OUTCOME),
        ([row(0, State.PREPARED), row(0, State.PREPARE_COMMIT)], WHOLE),
    ],
)
def test_records_of_a_transaction_that_must_not_follow_one_another(
    rows: Sequence[Row], invariant: str
) -> None:
    *before, last = rows
    decided = Decided(lambda handle, is_commit: None, lambda handle: None)
    for one in before:
        decided.take([one])
    with pytest.raises(Broken, match=invariant):
        decided.take([last])


def test_a_batch_of_a_sink_decides_all_of_its_transactions() -> None:
    decided = Decided(lambda handle, is_commit: None, lambda handle: None)
    decided.take([row(0, State.PREPARED)])
    handles = (Handle("sink~1", 7, 0), Handle("sink~2", 8, 0))
    with pytest.raises(Broken, match=WHOLE):
        decided.take([row(0, State.PREPARE_COMMIT), (SinkKey("sink"), Sink(sequence=1, handles=handles))])


def sink(epoch: int, sequence: int, *handles: Handle, run: str = "r", owner: str = "q") -> Row:
    """What the coordinator stores of a sink."""
    value = Sink(sequence=sequence, handles=handles, owner=owner, run=f"{run}{epoch}", epoch=epoch)
    return SinkKey("sink"), value


COMMITTED = Handle("sink~1", 7, 0)


@pytest.mark.parametrize(
    ("batches", "invariant"),
    [
        ([[sink(1, -1)], [sink(2, -1)], [sink(1, 0)]], IN_ORDER),
        ([[sink(1, -1)], [sink(3, -1)]], IN_ORDER),
        ([[sink(1, -1)], [sink(1, 0)], [sink(1, 0)]], WHOLE),
        ([[sink(1, -1)], [sink(1, 0)], [sink(1, 2)]], IN_ORDER),
        ([[sink(1, -1)], [sink(1, 0, COMMITTED)]], WHOLE),
        ([[sink(1, -1)], [row(0, State.PREPARE_COMMIT, run_epoch=2), sink(1, 0, COMMITTED)]], IN_ORDER),
    ],
)
def test_records_of_a_sink_that_must_not_follow_one_another(
    batches: Sequence[Sequence[Row]], invariant: str
) -> None:
    *before, last = batches
    decided = Decided(lambda handle, is_commit: None, lambda handle: None)
    for rows in before:
        decided.take(rows)
    with pytest.raises(Broken, match=invariant):
        decided.take(last)


def test_small_limits_fit_one_another_as_those_of_production_do() -> None:
    drawn = {WideOdds.drawn(random.Random(number)) for number in range(500)} - {None}
    assert len(drawn) == 9
    for odds in drawn:
        assert odds is not None
        limits = odds.frame_limits
        assert 0 < limits.decision_bytes_max < limits.write_bytes_max < limits.batch_bytes_max
        assert limits.batch_bytes_max + limits.repair_bytes_max < limits.frame_bytes_max
        assert limits.decision_bytes_max > NEAR * limits.frame_bytes_max / 2


def test_a_committed_batch_of_the_newest_run_is_seen_once() -> None:
    seen: list[tuple[Batch, tuple[Handle, ...]]] = []
    decided = Decided(
        lambda handle, is_commit: None,
        lambda handle: None,
        lambda batch, handles: seen.append((batch, handles)),
    )
    decided.take([sink(1, -1)])
    decided.take([row(0, State.PREPARE_COMMIT, run_epoch=1), sink(1, 0, COMMITTED)])
    assert seen == [(Batch("sink", "q", 0), (COMMITTED,))]
    decided.sinks.check_begun("sink", "r1", "q", 0, 1, True)
    with pytest.raises(Broken, match=IN_ORDER):
        decided.sinks.check_begun("sink", "r1", "q", 1, 1, True)
    with pytest.raises(Broken, match=WHOLE):
        decided.sinks.check_committed("sink", "r1", 1)
