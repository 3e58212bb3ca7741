"""A stream beside partitions that are decommissioned, removed and added again, with a whole broker."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark_io.archive.reporting import first_record, is_gone
from spark_io.errors import DataLoss, InvalidOption
from spark_io.planning import Range
from spark_io.source import StreamReader
from tests.helpers.spark_topics import Topics, offsets, rows, with_partitions, with_topics

ALL = ReadAllAvailable()
Offset = dict[str, object]


def at(first: int, second: int | None = None) -> Offset:
    """An offset of a checkpoint."""
    numbers = {"0": first} if second is None else {"0": first, "1": second}
    return {"v": 1, "topics": {"orders": numbers}}


def read(reader: StreamReader, start: Offset, end: Offset) -> list[tuple[object, object]]:
    """Partition and value of all records of a batch."""
    found = [row for part in reader.partitions(start, end) for row in rows(reader, part)]
    return sorted((row["partition"], row["value"]) for row in found)


# requirement: F5 A8
@with_topics
def test_a_partition_that_was_read_to_its_end_goes_without_an_error(topics: Topics) -> None:
    running = topics.stream()
    end = running.latestOffset(running.latestOffset(running.initialOffset(), ALL), ALL)
    assert end == at(5, 5)
    topics.remove_last()
    for stream in (running, topics.stream(), topics.stream(subscribe="", assign='{"orders":[0,1]}')):
        stream.prepareForTriggerAvailableNow()
        assert stream.latestOffset(end, ALL) == at(5), "the checkpoint no longer names it"
        assert stream.latestOffset(at(5), ALL) == at(5)
        assert stream.reportLatestOffset() == at(5)
    assert read(running, end, at(5)) == []
    assert read(running, at(0, 5), at(5, 8)) == [(0, b"0"), (0, b"2"), (0, b"4"), (0, b"6"), (0, b"8")], (
        "a planned batch has no record of it"
    )
    fresh = topics.stream(subscribe="", assign='{"orders":[0,1]}')
    with pytest.raises(InvalidOption, match="assign names orders/1, which does not exist"):
        fresh.latestOffset(fresh.initialOffset(), ALL)

    topics.client.topics.add_partitions("orders", 1)
    topics.fill(1)
    first = topics.client.topics.partitions("orders")[1].log_start_offset
    assert first > 1_000, "its offsets continue those of the removed one"
    for begin in (end, at(5)):
        stream = topics.stream()
        seen, start = [], begin
        while (following := stream.latestOffset(start, ALL)) != start:
            seen += read(stream, start, following)
            start = following
        assert seen == [(0, b"0"), (1, b"1")], "each record of the later partition once"
    assert read(topics.stream(), at(5, 5), at(5, first)) == []
    topics.empty(1)
    with pytest.raises(DataLoss, match=f"offsets {first} to .* of orders/1 are deleted"):
        topics.stream().latestOffset(at(6, first), ALL)


# requirement: F5 A8
@with_topics
def test_a_partition_that_goes_before_it_was_read_to_its_end_is_lost_data(topics: Topics) -> None:
    stream = topics.stream(maxOffsetsPerTrigger="8")
    begin = stream.latestOffset(stream.initialOffset(), ReadMaxRows(8))
    middle = stream.latestOffset(begin, ReadMaxRows(8))
    assert middle == at(4, 4)
    topics.remove_last()
    for again in (stream, topics.stream()):
        with pytest.raises(DataLoss, match="orders/1 was read up to offset 4, and was removed with records"):
            again.latestOffset(middle, ALL)
    with pytest.raises(DataLoss, match="orders/1 is deleted, with its offsets 4 to 4"):
        read(topics.stream(), middle, at(5, 5))
    lenient = topics.stream(failOnDataLoss="false")
    after = lenient.latestOffset(middle, ALL)
    assert after == at(5, 4)
    assert read(lenient, middle, at(5, 5)) == [(0, b"8")]
    topics.client.topics.add_partitions("orders", 1)
    topics.fill(1)
    with pytest.raises(DataLoss, match="of orders/1 are deleted"):
        topics.stream().latestOffset(middle, ALL)


# requirement: F5 A8
@with_partitions(3)
def test_offsets_without_records_are_no_lost_data_while_the_partition_waits(topics: Topics) -> None:
    stream = topics.stream()
    end = stream.latestOffset(stream.latestOffset(stream.initialOffset(), ALL), ALL)
    topics.client.topics.decommission_partitions("orders", [1, 2])
    topics.empty(1)  # it stays until the one behind it is removed
    found = topics.client.topics.partitions("orders")[1]
    assert found.log_start_offset > 5, "its seal is deleted too"
    assert found.records_end == 5
    after = topics.stream().latestOffset(end, ALL)
    assert read(topics.stream(), end, after) == []
    assert topics.rows(startingOffsets=offsets(5, 5, 5)) == []
    with pytest.raises(DataLoss, match=r"offsets 4 to .* of orders/1 are deleted"):
        topics.stream().latestOffset({"v": 1, "topics": {"orders": {"0": 5, "1": 4, "2": 5}}}, ALL)
    with pytest.raises(DataLoss, match=r"offsets 4 to .* of orders/1 are deleted"):
        topics.rows(startingOffsets=offsets(5, 4, 5))


# requirement: A8
@with_topics
def test_a_topic_that_is_deleted_is_lost_data_or_is_left_out(topics: Topics) -> None:
    topics.client.topics.create("kept", partitions=1, replication_factor=1)
    both = {"subscribe": "kept,orders"}
    stream = topics.stream(**both)
    end = stream.latestOffset(stream.latestOffset(stream.initialOffset(), ALL), ALL)
    topics.client.topics.delete("orders")
    with pytest.raises(DataLoss, match="orders/0, orders/1 was read before, but no longer exists"):
        topics.stream(**both).latestOffset(end, ALL)
    lenient = topics.stream(**both, failOnDataLoss="false")
    lenient.prepareForTriggerAvailableNow()
    assert lenient.latestOffset(end, ALL) == end
    fresh = topics.stream(**both)
    with pytest.raises(InvalidOption, match="topic 'orders' does not exist"):
        fresh.latestOffset(fresh.initialOffset(), ALL)


# requirement: F5 A8
@with_topics
def test_an_archive_takes_a_removed_partition_for_one_without_records(topics: Topics) -> None:
    topics.remove_last()
    gap = Range("orders", 1, 5, 9)
    assert is_gone(topics.client, gap), "a Delta table goes on behind it"
    assert first_record(topics.client, gap) == 5, "an archive with manifests does not know"
    topics.client.topics.delete("orders")
    assert is_gone(topics.client, gap)
    assert first_record(topics.client, gap) == 5
