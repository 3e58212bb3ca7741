"""How offsets are shared among tasks and triggers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.types import TopicPartition
from spark_io.planning import PACKED_RECORDS, Range, limited, rows_of_bytes, tasks

SIZES = st.lists(st.integers(1, 40_000), min_size=1, max_size=12)
P = [TopicPartition("t", number) for number in range(12)]


def ranges(*sizes: int) -> list[Range]:
    return [Range("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


def counts(found: list[list[Range]]) -> list[int]:
    return [sum(one.size for one in task) for task in found]


def test_small_partitions_share_a_task_and_large_ones_do_not() -> None:
    assert counts(tasks(ranges(*[10] * 16))) == [160]
    assert len(tasks(ranges(PACKED_RECORDS, 50_000, 60_000))) == 3
    assert tasks([]) == []


@given(
    SIZES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 20), st.none() | st.integers(50, 5_000)
)
def test_every_offset_is_in_one_task(
    sizes: list[int], low: int | None, high: int | None, records_max: int | None
) -> None:
    found = tasks(ranges(*sizes), min_partitions=low, max_partitions=high, max_records=records_max)
    for number, size in enumerate(sizes):
        parts = sorted((one.start, one.end) for task in found for one in task if one.partition == number)
        assert parts[0][0] == 100
        assert parts[-1][1] == 100 + size
        assert all(before[1] == after[0] for before, after in pairwise(parts))
    assert high is None or len(found) <= high
    assert low is None or high is not None or len(found) >= min(low, sum(sizes))
    assert records_max is None or high is not None or max(counts(found)) <= records_max


# requirement: A8
@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=12), st.integers(1, 3_000))
def test_a_trigger_takes_what_it_may_and_starves_no_partition(sizes: list[int], rows_max: int) -> None:
    start = {P[number]: 5 for number in range(len(sizes))}
    end = {P[number]: 5 + size for number, size in enumerate(sizes)}
    found = limited(start, end, rows_max)
    taken = {one: found[one] - start[one] for one in found}
    nonempty = [one for one in end if end[one] > 5]
    assert all(0 <= taken[one] <= end[one] - 5 for one in end)
    assert all(taken[one] >= 1 for one in nonempty)
    assert sum(taken.values()) <= max(rows_max, len(nonempty))
    assert sum(taken.values()) >= min(rows_max, sum(sizes))


@pytest.mark.parametrize(("bytes_max", "rows"), [(10_000_000, 150), (5_000, 7), (1, 1)])
def test_bytes_become_rows_by_the_average_record(bytes_max: int, rows: int) -> None:
    start, end = {P[0]: 0, P[1]: 0}, {P[0]: 100, P[1]: 50}
    assert rows_of_bytes(start, end, {P[0]: 1_000.0, P[1]: 10.0}, bytes_max) == rows
