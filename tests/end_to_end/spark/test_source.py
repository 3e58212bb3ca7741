"""Topics as a source of Spark, in a real session with real brokers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from spark_io import register
from spark_io.errors import DataLoss
from spark_io.options import read_options
from spark_io.planning import Range
from tests.helpers.real_cluster import create_topic, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def load(spark: SparkSession, servers: str, **options: str) -> DataFrame:
    """A batch read."""
    return spark.read.format("raftlog").option("bootstrap.servers", servers).options(**options).load()


def fill(client: Client, topic: str, numbers: range, partitions: int = 3) -> None:
    """Records with their numbers as values, one partition after the other."""
    with client.producer(topic) as producer:
        for number in numbers:
            producer.send(str(number), key=f"k{number % 5}", partition=number % partitions)


def numbers_in(frame: DataFrame) -> list[int]:
    """The values as numbers, sorted."""
    return sorted(int(row.value) for row in frame.select("value").collect())


# requirement: A8 X1
def test_a_batch_has_all_records_with_the_columns_of_kafka(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client
) -> None:
    create_topic(brokers.urls[0], "orders", 3)
    create_topic(brokers.urls[0], "created", 1, message_timestamp_type="CreateTime")
    fill(client, "orders", range(300))
    repeated = [("trace", "a"), ("trace", None), ("other", b"\xff")]
    sent = client.send("created", None, key=b"\x00", headers=repeated, timestamp=1_500)
    frame = load(spark, servers, subscribe="orders,created", includeHeaders="true")
    assert frame.rdd.getNumPartitions() == 1, "small partitions share a task"
    rows = frame.collect()
    (created,) = (row for row in rows if row.topic == "created")
    assert (created.key, created.value, created.partition, created.offset) == (b"\x00", None, 0, sent.offset)
    assert (created.timestamp.timestamp(), created.timestampType) == (1.5, 0)
    assert [(pair.key, pair.value) for pair in created.headers] == [
        ("trace", b"a"),
        ("trace", None),
        ("other", b"\xff"),
    ]
    orders = [row for row in rows if row.topic == "orders"]
    assert sorted(int(row.value) for row in orders) == [*range(300)]
    assert {(row.timestampType, row.headers) for row in orders} == {(1, None)}
    assert [row.offset for row in orders if row.partition == 1] == [*range(100)]
    plain = load(spark, servers, subscribePattern="ord.*", minPartitions="4")
    assert plain.rdd.getNumPartitions() >= 4
    assert "headers" not in plain.columns
    assert plain.where("partition = 1").union(plain.where("partition = 2")).count() == 200
    assert plain.count() == 300, "a filter of one use changes no other"


def test_a_batch_begins_and_ends_at_the_offsets_that_were_asked_for(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client
) -> None:
    create_topic(brokers.urls[0], "bounds", 2)
    create_topic(brokers.urls[0], "empty", 2)
    fill(client, "bounds", range(20), partitions=2)
    register(spark)  # changes nothing where Spark has found it
    starts, ends = {"bounds": {"0": 3, "1": -2}}, {"bounds": {"0": -1, "1": 4}}
    frame = load(
        spark, servers, subscribe="bounds", startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends)
    )
    assert numbers_in(frame) == sorted([*range(6, 20, 2), 1, 3, 5, 7])
    assert load(spark, servers, subscribe="empty").collect() == []
    assert numbers_in(load(spark, servers, assign='{"bounds":[1]}')) == [*range(1, 20, 2)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "nowhere"}, "topic 'nowhere' does not exist; create it"),
        ({"subscribe": "wrong", "startingOffset": "1"}, "did you mean startingOffsets?"),
    ],
)
def test_wrong_options_say_what_is_wrong(
    spark: SparkSession,
    brokers: Cluster,
    servers: str,
    client: Client,
    options: dict[str, str],
    expected: str,
) -> None:
    if "wrong" not in [topic.name for topic in client.topics.list()]:
        create_topic(brokers.urls[0], "wrong", 2)
        fill(client, "wrong", range(10), partitions=2)
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as error:
        load(spark, servers, **{"subscribe": "wrong", **options}).count()
    assert expected in str(error.value)


def drain(spark: SparkSession, servers: str, directory: Path, **options: str) -> list[tuple[int, int]]:
    """Run a query, whose checkpoint and output are there, until nothing is left; batches and their rows."""
    source = spark.readStream.format("raftlog").option("bootstrap.servers", servers).options(**options)
    sink = source.load().selectExpr("cast(value as string) as value").writeStream.format("json")
    sink = sink.option("checkpointLocation", str(directory / "checkpoint"))
    query = sink.option("path", str(directory / "out")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [(progress.batchId, progress.numInputRows) for progress in query.recentProgress]


def drained(spark: SparkSession, directory: Path) -> list[int]:
    """What such queries have written."""
    return numbers_in(spark.read.schema("value string").json(str(directory / "out")))


# requirement: A8 X1
def test_a_stream_goes_on_where_it_was_and_reads_every_record_once(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "stream-1", 2)
    fill(client, "stream-1", range(50), partitions=2)

    options = {"subscribePattern": "stream-.*", "startingOffsets": "earliest", "groupId": "spark-lag"}
    batches = drain(spark, servers, tmp_path, **options, maxOffsetsPerTrigger="40")
    assert batches[:3] == [(0, 0), (1, 40), (2, 10)]
    for name in ("2", ".2.crc"):  # as after a crash: the batch is repeated, and there are new partitions
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    create_topic(brokers.urls[0], "stream-2", 1)
    fill(client, "stream-1", range(50, 60), partitions=2)
    fill(client, "stream-2", range(60, 70), partitions=1)
    drain(spark, servers, tmp_path, **options, maxBytesPerTrigger="1000000")
    assert drained(spark, tmp_path) == [*range(70)]
    shown = {
        (item.topic, item.partition): item.committed_offset for item in client.groups.offsets("spark-lag")
    }
    assert shown[("stream-1", 0)] >= 25


# requirement: A8
def test_a_stream_waits_for_records_and_has_the_columns_that_were_asked_for(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "waits", 1)
    fill(client, "waits", range(5), partitions=1)
    source = spark.readStream.format("raftlog").option("bootstrap.servers", servers)
    limits = {"minOffsetsPerTrigger": "4", "maxTriggerDelay": "1h"}
    frame = source.options(subscribe="waits", startingOffsets="earliest", columns="offset", **limits).load()
    assert frame.columns == ["offset"]
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    query = (
        frame.writeStream.format("memory")
        .queryName("waits")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="100 milliseconds")
        .start()
    )

    def read() -> int:
        assert query.exception() is None
        return spark.sql("select * from waits").count()

    def looks_at_eight() -> int:
        seen = [one for one in query.recentProgress if '"0": 8' in str(one.sources[0].latestOffset)]
        return sum(one.numInputRows == 0 for one in seen)

    try:
        eventually(lambda: read() == 5, what="the first batch does not wait")
        fill(client, "waits", range(3), partitions=1)
        eventually(lambda: looks_at_eight() >= 2, what="two triggers that see three records")
        assert read() == 5
        fill(client, "waits", range(1), partitions=1)
        eventually(lambda: read() == 9, what="four records are enough")
        sizes = [one.numInputRows for one in query.recentProgress if one.numInputRows]
        assert sizes == [5, 4]
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        query.stop()


# requirement: A8
def test_a_crash_in_the_first_batch_does_not_move_latest(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "latest", 1)
    fill(client, "latest", range(5), partitions=1)
    drain(spark, servers, tmp_path, subscribe="latest")
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    fill(client, "latest", range(5, 10), partitions=1)
    drain(spark, servers, tmp_path, subscribe="latest")
    assert drained(spark, tmp_path) == [*range(5, 10)]


# requirement: A8
def test_records_that_retention_has_deleted_are_an_error_or_are_left_out(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "aged", 1, segment_bytes=4_096, retention_bytes=4_096)
    for number in range(100):
        client.send("aged", f"{number:0200}")

    def first() -> int:
        return client.topics.partitions("aged")[0].log_start_offset

    eventually(first, what="retention deletes records")
    options = {"subscribe": "aged", "startingOffsets": '{"aged":{"0":0}}'}
    with pytest.raises(Exception, match=r"offsets 0 to .* of aged/0 are deleted.*failOnDataLoss=false"):
        load(spark, servers, **options).count()
    seen = numbers_in(load(spark, servers, **options, failOnDataLoss="false"))
    assert seen == [*range(seen[0], 100)]
    assert 0 < seen[0] <= first()
    with pytest.raises(Exception, match=r"offsets 0 to .* of aged/0 are deleted.*failOnDataLoss=false"):
        drain(spark, servers, tmp_path / "fails", **options)
    drain(spark, servers, tmp_path / "goes on", **options, failOnDataLoss="false")
    kept = drained(spark, tmp_path / "goes on")
    assert kept == [*range(kept[0], 100)]
    assert 0 < kept[0] <= first()
    assert read_planned_range(client, servers, fails=False) == seen
    with pytest.raises(DataLoss, match=r"offsets 0 to .* of aged/0 are deleted"):
        read_planned_range(client, servers, fails=True)


def read_planned_range(client: Client, servers: str, *, fails: bool) -> list[int]:
    """What a task reads of a range that was planned before its first records were deleted."""
    from spark_io.reading import read_ranges
    from spark_io.schemas import arrow_schema, schema_of

    given = {"bootstrap.servers": servers, "subscribe": "aged", "failOnDataLoss": str(fails)}
    schema = arrow_schema(schema_of(includes_headers=False))
    end = client.topics.partitions("aged")[0].last_stable_offset  # elections have offsets, too
    found = read_ranges(client, read_options(given, is_stream=True), [Range("aged", 0, 0, end)], schema)
    return [int(value) for batch in found for value in batch.column("value").to_pylist()]
