"""Where a read of archive and log changes from one to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.storage import DirectoryStorage
from spark_io.archive.view import divided, extended, offset_in_both
from spark_io.discovery import batch_ranges
from spark_io.errors import DataLoss
from spark_io.options import read_options
from spark_io.partition_ends import Bounds
from spark_io.planning import Range
from spark_io.positions import AtTime
from tests.helpers.archives import ORDERS, archived

Found = tuple[list[tuple[int, int]], list[Range]]


def planned(folder: Path, log: tuple[int, int], **options: str) -> Found:
    """The offsets that a read takes from files, and from the log."""
    storage = DirectoryStorage(folder)
    found = catalogue.load(storage)
    bounds = {ORDERS: Bounds(*log, 1.0)}

    def in_log(_: TopicPartition, position: AtTime | Literal["earliest"]) -> int:
        return log[0] if position == "earliest" else max(log[0], position.ms - 1_000)

    given = {"bootstrap.servers": "h:1", "subscribe": "orders", "archive": str(folder), **options}
    both = offset_in_both(in_log, bounds, found, storage)
    ranges = batch_ranges(read_options(given, is_stream=False), extended(bounds, found), both)
    pieces, live = divided(ranges, bounds, found)
    return [(one.start, one.end) for _, one in pieces], live


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive of the offsets 0 to 29, without 5 to 9, in three files."""
    archived(DirectoryStorage(tmp_path), 1, (0, 5), (10, 20), (20, 30))
    return tmp_path


# requirement: A8
@pytest.mark.parametrize(
    ("log", "pieces", "live"),
    [
        ((30, 40), [(10, 20), (20, 30)], [(30, 40)]),
        ((25, 40), [(10, 20), (20, 25)], [(25, 40)]),
        ((20, 40), [(10, 20)], [(20, 40)]),
        ((0, 40), [], [(0, 40)]),
        ((30, 30), [(10, 20), (20, 30)], []),
        ((31, 40), [], [(31, 40)]),
    ],
)
def test_files_end_where_the_log_starts(
    folder: Path, log: tuple[int, int], pieces: list[tuple[int, int]], live: list[tuple[int, int]]
) -> None:
    found, ranges = planned(folder, log)
    assert found == pieces
    assert ranges == [Range("orders", 0, start, end) for start, end in live]


# requirement: A8
def test_offsets_that_neither_has_are_lost(folder: Path) -> None:
    with pytest.raises(DataLoss, match="offsets 3 to 9"):
        planned(folder, (25, 40), startingOffsets='{"orders":{"0":3}}')
    start = '{"orders":{"0":3}}'
    assert planned(folder, (25, 40), startingOffsets=start, failOnDataLoss="false")[0] == [(10, 20), (20, 25)]
    with pytest.raises(DataLoss):
        planned(folder, (31, 40), startingOffsets='{"orders":{"0":12}}')


# requirement: A8
def test_a_time_is_looked_for_in_files_and_in_the_log(folder: Path) -> None:
    assert planned(folder, (25, 40), startingTimestamp="1022") == ([(22, 25)], [Range("orders", 0, 25, 40)])
    assert planned(folder, (25, 40), startingTimestamp="1030") == ([], [Range("orders", 0, 30, 40)])
    assert planned(folder, (25, 40), endingTimestamp="1015") == ([(10, 15)], [])
