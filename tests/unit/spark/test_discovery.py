"""What positions mean in the partitions that exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pytest

from raftlog.types import TopicPartition
from spark_io.discovery import batch_ranges, resolved
from spark_io.errors import DataLoss, InvalidOption
from spark_io.options import ReadOptions, read_options
from spark_io.partition_ends import Bounds
from spark_io.planning import Range
from spark_io.positions import AtTime, Positions

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOUNDS = {A: Bounds(0, 10, 1.0), B: Bounds(40, 50, 1.0)}
READABLE_FROM = 42  # in B: the log begins below it, with records that readers do not get


def offset_of(target: TopicPartition, position: AtTime | Literal["earliest"]) -> int:
    """A record every millisecond."""
    if isinstance(position, AtTime):
        return min(position.ms, BOUNDS[target].end)
    return READABLE_FROM


def options(**given: str) -> ReadOptions:
    return read_options({"bootstrap.servers": "b1", "subscribe": "t", **given}, is_stream=False)


def ranges(bounds: Mapping[TopicPartition, Bounds] = BOUNDS, **given: str) -> list[Range]:
    return batch_ranges(options(**given), bounds, offset_of)


# requirement: A8
def test_earliest_is_the_first_record_that_can_be_read() -> None:
    assert ranges() == [Range("t", 0, 0, 10), Range("t", 1, READABLE_FROM, 50)]
    assert ranges({A: Bounds(0, 0, 1.0)}) == []


def test_a_time_is_the_first_record_since_or_the_end_on_request() -> None:
    assert resolved(Positions("o", AtTime(7)), {A: BOUNDS[A]}, offset_of) == {A: 7}
    with pytest.raises(InvalidOption, match="t/0 has no record since 10"):
        resolved(Positions("o", AtTime(10)), {A: BOUNDS[A]}, offset_of)
    at_end = Positions("o", AtTime(99), takes_end_without_record=True)
    assert resolved(at_end, {A: BOUNDS[A]}, offset_of) == {A: 10}


def test_an_offset_beyond_the_end_or_behind_the_ending_offset_is_refused() -> None:
    with pytest.raises(InvalidOption, match="offset 11 of t/0 is beyond its end, 10"):
        ranges(startingOffsets='{"t":{"0":11,"1":-2}}')
    with pytest.raises(InvalidOption, match="give a start below the end"):
        ranges(startingOffsets='{"t":{"0":6,"1":-2}}', endingOffsets='{"t":{"0":5,"1":-1}}')


# requirement: A8
def test_offsets_below_the_log_start_are_lost_data() -> None:
    starts = '{"t":{"0":0,"1":3}}'
    with pytest.raises(DataLoss, match="offsets 3 to 39 of t/1 are deleted, the log begins at 40"):
        ranges(startingOffsets=starts)
    found = ranges(startingOffsets=starts, failOnDataLoss="false")
    assert found == [Range("t", 0, 0, 10), Range("t", 1, 40, 50)]
