"""Topics as a sink of Spark, in a real session with real brokers, while tasks and drivers are killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.vocabulary import open_ids, visible
from tests.helpers.real_cluster import create_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def save(frame: DataFrame, servers: str, **options: str) -> None:
    """A batch write."""
    frame.write.format("raftlog").mode("append").options(**{"bootstrap.servers": servers, **options}).save()


# requirement: D3 X1
def test_a_write_is_visible_as_a_whole_with_all_columns(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client
) -> None:
    create_topic(brokers.urls[0], "columns", 2, message_timestamp_type="CreateTime")
    rows = "'columns' as topic, 1 as partition, cast(1.5 as timestamp) as timestamp"
    first_header = "named_struct('key', 'h', 'value', cast('1' as binary))"
    second_header = "named_struct('key', 'h', 'value', cast(null as binary))"
    frame = spark.sql(
        f"select 'k' as key, cast('v' as binary) as value, {rows}, "
        f"array({first_header}, {second_header}) as headers union all select null, null, {rows}, null"
    )
    save(frame, servers)
    first, second = sorted(visible(client, "columns"), key=lambda message: message.key is None)
    assert (first.key, first.value, first.partition, first.timestamp_ms) == (b"k", b"v", 1, 1_500)
    assert first.headers == (("h", b"1"), ("h", None))
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert open_ids(client) == []


# requirement: D3 X1
def test_a_write_that_fails_leaves_nothing(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client
) -> None:
    create_topic(brokers.urls[0], "fails", 2)
    numbers = spark.range(0, 2_000, 1, 2)
    failing = numbers.selectExpr("cast(if(id = 1900, raise_error('stop'), id) as string) as value")
    with pytest.raises(Exception, match="stop"):
        save(failing, servers, topic="fails")
    assert visible(client, "fails") == []
    save(numbers.selectExpr("cast(id as string) as value").where("id < 0"), servers, topic="fails")
    assert visible(client, "fails") == []
    assert open_ids(client) == []


# requirement: D3
def test_a_version_of_an_application_is_written_once(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client
) -> None:
    create_topic(brokers.urls[0], "versions", 2)
    frame = spark.range(0, 10, 1, 2).selectExpr("cast(id as string) as value")
    for version in ("3", "3", "2", "4"):
        save(frame, servers, topic="versions", txnAppId="daily", txnVersion=version)
    assert len(visible(client, "versions")) == 20
    save(frame, servers, topic="versions", delivery="at_least_once", acks="every")
    assert len(visible(client, "versions")) == 30
    assert open_ids(client) == []


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("id as value", {"topic": "t"}, "column value has the type bigint, and must have string or binary"),
        ("'a' as value, cast(null as string) as topic", {}, "column topic is null in a row"),
        ("'a' as value, 'version' as topic", {}, "'version' does not exist (did you mean 'versions'?)"),
    ],
)
def test_rows_that_cannot_be_written_say_what_is_wrong(
    spark: SparkSession,
    brokers: Cluster,
    servers: str,
    client: Client,
    columns: str,
    options: dict[str, str],
    expected: str,
) -> None:
    if "versions" not in [topic.name for topic in client.topics.list()]:
        create_topic(brokers.urls[0], "versions", 2)
    spark.sparkContext.setJobGroup(expected, "a write that is refused")
    with pytest.raises(Exception, match=r"PYTHON|Spark|aborted|error") as error:
        save(spark.range(0, 1, 1, 1).selectExpr(*columns.split(", ")), servers, **options)
    assert expected in str(error.value)
    tracker = spark.sparkContext.statusTracker()
    infos = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(expected)]
    stages = [tracker.getStageInfo(one) for info in infos if info for one in info.stageIds]
    assert [stage.numFailedTasks for stage in stages if stage] == [0] * len(stages), "Spark repeats no task"


# requirement: A8 D3
def test_a_pipeline_writes_each_record_once_although_a_batch_is_repeated(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "lower", 2)
    create_topic(brokers.urls[0], "upper", 2)
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        source = spark.readStream.format("raftlog").option("bootstrap.servers", servers)
        frame = source.options(subscribe="lower", startingOffsets="earliest").load()
        upper = frame.selectExpr("key", "upper(cast(value as string)) as value").repartition(2)
        sink = upper.writeStream.format("raftlog").option("bootstrap.servers", servers)
        sink = sink.option("topic", "upper").option("checkpointLocation", str(checkpoint))
        sink.trigger(availableNow=True).start().awaitTermination()

    with client.producer("lower") as producer:
        for number in range(200):
            producer.send(f"v{number}", key=f"k{number}")
    run()
    assert sorted(str(one.value, "utf8") for one in visible(client, "upper")) == sorted(
        f"V{number}" for number in range(200)
    )
    (checkpoint / "commits" / "1").unlink()  # as after a crash behind the commit of the batch
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    client.send("lower", "last", key="k")
    run()
    assert len(visible(client, "upper")) == 201
    assert open_ids(client) == []


# requirement: A8 D3
def test_a_new_checkpoint_is_not_taken_for_the_old_one(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path
) -> None:
    create_topic(brokers.urls[0], "first-input", 2)
    create_topic(brokers.urls[0], "named", 2)

    def run(checkpoint: str, **options: str) -> None:
        source = spark.readStream.format("raftlog").option("bootstrap.servers", servers)
        frame = source.options(subscribe="first-input", startingOffsets="earliest").load()
        sink = frame.select("key", "value").writeStream.format("raftlog").options(**options)
        sink = sink.option("bootstrap.servers", servers).option("topic", "named")
        sink = sink.option("checkpointLocation", str(tmp_path / checkpoint))
        sink.trigger(availableNow=True).start().awaitTermination()

    client.send("first-input", "a", key="k")
    named = {"sinkId": "clean", "linger": "1ms", "batch.bytes": "65536"}
    run("one", **named)
    run("one", **named)
    with pytest.raises(Exception, match=r"belongs to the query .* set sinkTakeover=true"):
        run("two", **named)
    assert [one.value for one in visible(client, "named")] == [b"a"]
    run("two", **named, sinkTakeover="true")
    assert [one.value for one in visible(client, "named")] == [b"a", b"a"], "it reads all again, as asked"
    client.send("first-input", "b", key="k")
    with pytest.raises(Exception, match="belongs to the query"):
        run("one", **named)
    assert open_ids(client) == []
