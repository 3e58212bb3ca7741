"""What a source and a sink make of input that is wrong or lost, with a whole broker and without Spark."""

from __future__ import annotations

import asyncio
import pickle

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from raftlog import Client
from raftlog.errors import NotSent, RaftlogError
from spark_io.data_source import RaftlogDataSource
from spark_io.errors import DataLoss, InvalidOption
from spark_io.options import write_options
from spark_io.sink import BatchWriter
from spark_io.source import StreamReader
from spark_io.staging import Staged
from spark_io.targets import check_target
from tests.helpers.async_tests import in_real_time
from tests.helpers.spark_topics import Topics, offsets, rows, with_topics
from tests.helpers.whole_broker import whole_broker

ALL = ReadAllAvailable()
_PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


# requirement: A8
@with_topics
def test_a_topic_that_does_not_exist_is_an_error_with_its_name(topics: Topics) -> None:
    with pytest.raises(InvalidOption, match="topic 'nowhere' does not exist; create it, or correct"):
        topics.batch(subscribe="orders,nowhere").partitions()
    stream = topics.stream(subscribe="nowhere")
    with pytest.raises(InvalidOption, match="topic 'nowhere' does not exist"):
        stream.latestOffset(stream.initialOffset(), ALL)
    with pytest.raises(RaftlogError, match="nowhere"):
        topics.staged("nowhere", {"value": pa.array(["v"])})
    assert topics.client.transactions.list() == [], "nothing is left open"
    assert topics.rows(subscribePattern="no.*", subscribe="") == [], "a pattern may match nothing yet"


# requirement: A8
@with_topics
def test_a_sink_is_refused_on_the_driver_if_its_topic_does_not_exist(topics: Topics) -> None:
    schema = StructType([StructField("value", StringType())])
    options = {"bootstrap.servers": f"127.0.0.1:1,{topics.url}"}
    refusal = r"topic 'order' does not exist \(did you mean 'orders'\?\); create it, or correct its name"
    for writer in (RaftlogDataSource.writer, RaftlogDataSource.streamWriter):
        with pytest.raises(InvalidOption, match=refusal) as raised:
            writer(RaftlogDataSource({**options, "topic": "order"}), schema, False)
        assert raised.value.__suppress_context__, "Spark shows one traceback"
        assert writer(RaftlogDataSource({**options, "topic": "orders"}), schema, False)


@pytest.mark.parametrize("topic", ["orders", None])
def test_a_sink_whose_brokers_do_not_answer_is_refused_on_the_driver(topic: str | None) -> None:
    with pytest.raises(NotSent, match=r"no broker answers \(http://127\.0\.0\.1:1: .*efused\); correct"):
        check_target(("http://127.0.0.1:1",), topic, 0.0)
    check_target(("http://127.0.0.1:1",), topic, None)  # tasks of a stream try for longer


# requirement: A8
@pytest.mark.parametrize(
    ("columns", "refusal"),
    [
        ({"topic": pa.array(["order"])}, r"topic 'order' does not exist \(did you mean 'orders'\?\)"),
        ({"topic": pa.array([None], pa.string())}, "column topic is null in a row"),
        ({"topic": pa.array(["orders"]), "partition": pa.array([7])}, "orders has the partitions 0 to 1"),
    ],
)
def test_the_driver_is_told_of_rows_that_no_attempt_can_write(
    columns: dict[str, pa.Array], refusal: str
) -> None:
    @with_topics
    def test(topics: Topics) -> None:
        given = {"bootstrap.servers": topics.url, "delivery": "at_least_once"}
        writer = BatchWriter(write_options(given, is_stream=False))
        rows = pa.RecordBatch.from_pydict({"value": pa.array(["v"]), **columns})
        told = pickle.loads(pickle.dumps(writer.write(iter([rows]))))
        with pytest.raises(Exception, match=refusal):
            writer.commit([Staged("", None, 1), told])

    test()


# requirement: A8
@with_topics
def test_offsets_must_be_those_of_the_partitions_and_not_beyond_their_end(topics: Topics) -> None:
    wrong = {
        (0,): "has no offset for orders/1; name every partition that is read",
        (0, 0, 0): "names orders/2, which is not read; leave it out",
        (0, 6): "offset 6 of orders/1 is beyond its end, 5; use -1 for latest",
    }
    for numbers, expected in wrong.items():
        for option in ("startingOffsets", "endingOffsets"):
            with pytest.raises(InvalidOption, match=f"{option}.*{expected}"):
                topics.batch(**{option: offsets(*numbers)}).partitions()
        stream = topics.stream(startingOffsets=offsets(*numbers))
        with pytest.raises(InvalidOption, match=f"startingOffsets.*{expected}"):
            stream.latestOffset(stream.initialOffset(), ALL)
    with pytest.raises(InvalidOption, match="startingOffsetsByTimestamp has no offset for orders/1"):
        topics.batch(startingOffsetsByTimestamp=offsets(0)).partitions()
    with pytest.raises(InvalidOption, match=r"names other/0, other/1, which is not read|has no offset for"):
        topics.batch(startingOffsets=offsets(0, 0, topic="other")).partitions()
    with pytest.raises(InvalidOption, match=r"startingOffsets is .*which is not JSON"):
        topics.batch(startingOffsets='{"orders":{"0":')
    assert topics.rows(startingOffsets=offsets(5, 5)) == [], "the end itself is no error"


# requirement: A8
@with_topics
def test_nulls_and_repeated_headers_come_back_as_they_were_written(topics: Topics) -> None:
    pairs = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "h", "value": b"1"}]
    written = topics.staged(
        "orders",
        {
            "value": pa.array([None, ""], pa.string()),
            "key": pa.array([None, ""], pa.string()),
            "partition": pa.array([0, 0], pa.int32()),
            "headers": pa.array([pairs, None], _PAIRS),
        },
    )
    assert written.transaction is not None
    topics.client.transactions.commit_batch("spark-q", 1, [written.transaction])
    first, second = topics.rows(startingOffsets=offsets(5, 5))
    assert (first["key"], first["value"], first["headers"]) == (None, None, pairs)
    assert (second["key"], second["value"], second["headers"]) == (b"", b"", None)


# requirement: A8
@with_topics
def test_a_topic_that_was_created_again_is_lost_data_and_no_silence(topics: Topics) -> None:
    stream = topics.stream()
    begin = stream.latestOffset(stream.initialOffset(), ALL)
    end = stream.latestOffset(begin, ALL)
    assert stream.latestOffset(end, ALL) == end, "all is read, and nothing is lost"
    topics.client.topics.delete("orders")
    topics.client.topics.create("orders", partitions=2, replication_factor=1)
    topics.fill(3)
    with pytest.raises(
        DataLoss, match="orders/0 was read up to offset 5, and ends at 3: the topic was deleted"
    ):
        topics.stream().latestOffset(end, ALL)
    lenient = topics.stream(failOnDataLoss="false")
    assert lenient.latestOffset(end, ALL) == end
    topics.fill(4)
    after = lenient.latestOffset(end, ALL)
    read = [row for part in lenient.partitions(end, after) for row in rows(lenient, part)]
    assert sorted((row["partition"], row["offset"]) for row in read) == [(0, 5), (0, 6), (1, 5), (1, 6)]


def test_a_sink_that_has_no_topic_for_a_row_writes_nothing() -> None:
    async def run() -> None:
        async with whole_broker() as broker:

            def use() -> None:
                with Client(broker.url) as client:
                    topics = Topics(broker.url, client)
                    columns = {"value": pa.array(["a", "b"]), "topic": pa.array(["orders", None])}
                    with pytest.raises(ValueError, match="column topic is null in a row; set the option"):
                        topics.staged(None, columns)
                    far = {"value": pa.array(["a"]), "partition": pa.array([7], pa.int64())}
                    with pytest.raises(Exception, match=r"orders has the partitions 0 to 1"):
                        topics.staged("orders", far)
                    assert client.transactions.list() == []

            await asyncio.to_thread(use)

    in_real_time(run)()


# requirement: A8
@with_topics
def test_an_offset_that_is_aged_out_is_an_error_or_is_left_out(topics: Topics) -> None:
    stream = topics.stream()
    begin = stream.latestOffset(stream.initialOffset(), ALL)
    end = stream.latestOffset(begin, ALL)
    topics.client.partitions.delete_before("orders", 0, 3)
    lost = "offsets 0 to 2 of orders/0 are deleted, the log begins at 3.*set failOnDataLoss=false"
    with pytest.raises(DataLoss, match=lost):
        topics.rows(startingOffsets=offsets(0, 0))
    with pytest.raises(DataLoss, match=lost):
        topics.stream().latestOffset(begin, ALL)
    with pytest.raises(DataLoss, match=lost):
        values(topics.stream(), begin, end)
    lenient = {"failOnDataLoss": "false"}
    kept = [b"1", b"3", b"5", b"6", b"7", b"8", b"9"]
    assert sorted(row["value"] for row in topics.rows(startingOffsets=offsets(0, 0), **lenient)) == kept
    after = topics.stream(**lenient).latestOffset(begin, ALL)
    assert values(topics.stream(**lenient), begin, end) == kept
    assert b"6" in values(topics.stream(**lenient), begin, after)
    assert len(topics.rows()) == 7, "earliest is the first record that is left"


def values(reader: StreamReader, start: dict[str, object], end: dict[str, object]) -> list[object]:
    """The values of a planned batch."""
    return sorted(row["value"] for part in reader.partitions(start, end) for row in rows(reader, part))
