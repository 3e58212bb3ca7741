"""Which reads of a partition a task makes, and which of them wait."""

from __future__ import annotations

from typing import cast

import pytest

from raftlog import Client
from raftlog.client.messages import Chunk
from spark_io.options import read_options
from spark_io.planning import Range
from spark_io.reading import read_ranges
from spark_io.schemas import arrow_schema, schema_of

SCHEMA = arrow_schema(schema_of(includes_headers=False))
OPTIONS = read_options({"bootstrap.servers": "http://127.0.0.1:1", "subscribe": "orders"}, is_stream=False)
AT_ONCE, PATIENT = "0ms", "120000ms"


class Partitions:
    """A client whose chunks have no messages and end where the test says."""

    def __init__(self, *ends: int) -> None:
        self.reads: list[tuple[int, str]] = []
        self._ends = iter(ends)

    def partition(self, topic: str, partition: int) -> Partitions:
        return self

    def read(self, at: int, *, wait: str, **options: object) -> Chunk:
        self.reads.append((at, wait))
        return Chunk([], next(self._ends), -1, -1, -1)


def task(partitions: Partitions) -> int:
    """The batches of a task that reads the offsets 5 to 8."""
    return len([*read_ranges(cast("Client", partitions), OPTIONS, [Range("orders", 0, 5, 9)], SCHEMA)])


# requirement: F5 A8
def test_a_range_that_ends_with_control_records_is_not_waited_for() -> None:
    partitions = Partitions(7, 9)
    assert task(partitions) == 0
    assert partitions.reads == [(5, AT_ONCE), (7, AT_ONCE)]


def test_a_leader_that_does_not_know_the_end_yet_is_waited_for() -> None:
    partitions = Partitions(7, 7, 8, 9)
    assert task(partitions) == 0
    assert partitions.reads == [(5, AT_ONCE), (7, AT_ONCE), (7, PATIENT), (8, AT_ONCE)]


def test_a_range_without_progress_is_an_error_after_the_fetch_timeout() -> None:
    partitions = Partitions(5, 5)
    with pytest.raises(TimeoutError, match="no record from offset 5 on within 120 s, the fetchTimeout"):
        task(partitions)
    assert partitions.reads == [(5, AT_ONCE), (5, PATIENT)]
