"""Where the batches of a stream end: new partitions, deleted ones, limits, and what is gone."""

from __future__ import annotations

import pytest

from raftlog.types import TopicPartition
from spark_io.errors import DataLoss, InvalidOption
from spark_io.options import Limits
from spark_io.partition_ends import Bounds
from spark_io.stream_offsets import BEFORE_FIRST, is_before_first, parsed, written
from spark_io.stream_progress import Offsets, check_starts, next_end, stream_ranges, waits_for_more

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def bounds(**ends: tuple[int, int]) -> dict[TopicPartition, Bounds]:
    return {TopicPartition("t", int(name[1:])): Bounds(*one, 100.0) for name, one in ends.items()}


def limits(rows: int, **others: float) -> Limits:
    return Limits(
        min_partitions=None,
        max_partitions=None,
        max_records_per_partition=None,
        max_offsets_per_trigger=rows,
        max_bytes_per_trigger=None,
        min_offsets_per_trigger=int(others["rows_min"]) if others else None,
        max_trigger_delay_s=others.get("delay_s", 0.0),
    )


def test_offsets_are_the_same_text_in_any_order_and_versioned() -> None:
    assert written({B: 2, A: 12}) == written({A: 12, B: 2}) == {"v": 1, "topics": {"t": {"0": 12, "1": 2}}}
    assert parsed(written({A: 12, B: 2})) == {A: 12, B: 2}
    assert is_before_first(BEFORE_FIRST)
    assert not is_before_first(written({}))
    with pytest.raises(InvalidOption, match="another checkpointLocation"):
        parsed({"v": 2, "topics": {}})


# requirement: A8
def test_a_new_partition_enters_with_its_first_offset_and_is_read_from_the_next_batch_on() -> None:
    start: Offsets = {A: 3}
    found = bounds(p0=(0, 5), p1=(4, 9))
    end = next_end(start, found, limits=None, target=None, fails=True)
    assert end == {A: 5, B: 4}
    assert [(one.partition, one.start, one.end) for one in stream_ranges(start, end)] == [(0, 3, 5)]
    after = next_end(end, found, limits=None, target=None, fails=True)
    assert [(one.partition, one.start, one.end) for one in stream_ranges(end, after)] == [(1, 4, 9)]


def test_an_empty_new_partition_makes_no_batch() -> None:
    assert next_end({A: 5}, bounds(p0=(0, 5), p1=(0, 0)), limits=None, target=None, fails=True) == {A: 5}


def test_available_now_reads_no_further_than_its_target_and_gets_there() -> None:
    found, target = bounds(p0=(0, 50), p1=(0, 50)), {A: 8, B: 3}
    at: Offsets = {A: 2}
    seen = []
    while True:
        end = next_end(at, found, limits=limits(4), target=target, fails=True)
        if end == at:
            break
        seen += stream_ranges(at, end)
        at = end
    assert at == target
    assert sum(one.size for one in seen) == 6 + 3


def test_a_leader_that_knows_less_takes_nothing_back() -> None:
    assert next_end({A: 9}, bounds(p0=(0, 5)), limits=None, target=None, fails=True) == {A: 9}


# requirement: A8
def test_what_is_gone_is_an_error_or_is_left_out() -> None:
    with pytest.raises(DataLoss, match="t/1 was read before, but no longer exists"):
        next_end({A: 1, B: 1}, bounds(p0=(0, 5)), limits=None, target=None, fails=True)
    assert next_end({A: 1, B: 1}, bounds(p0=(0, 5)), limits=None, target=None, fails=False) == {A: 5, B: 1}
    with pytest.raises(DataLoss, match=r"offsets 1 to 3 of t/0 are deleted.*failOnDataLoss=false"):
        check_starts({A: 1}, bounds(p0=(4, 5)), True)
    check_starts({A: 1}, bounds(p0=(4, 5)), False)


# requirement: A8
def test_a_batch_waits_for_records_but_not_for_ever_and_the_first_one_not_at_all() -> None:
    found = bounds(p0=(0, 5), p1=(0, 6))
    wanted = limits(100, rows_min=4, delay_s=60)
    assert waits_for_more({A: 3, B: 5}, found, wanted, 59.9)
    assert not waits_for_more({A: 3, B: 4}, found, wanted, 59.9), "all partitions count together"
    assert waits_for_more({A: 3, B: 9}, found, wanted, 0.0), "a leader that knows less takes nothing away"
    assert not waits_for_more({A: 3, B: 5}, found, wanted, 60.0)
    assert not waits_for_more({A: 3, B: 5}, found, wanted, None)
    assert not waits_for_more({A: 5}, found, limits(100), 0.0)
    assert waits_for_more({A: 0}, bounds(p0=(3, 5)), wanted, 0.0), "deleted records are not waited for"
