"""An archive made by Spark: each row once while drivers are killed, read, replayed without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.archiving import RECORDS, archive_with_killed_drivers, drive
from tests.end_to_end.spark.vocabulary import visible, why_no_spark
from tests.helpers.command_line import command, run
from tests.helpers.real_cluster import create_topic, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def archive(brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the topic ``history``, whose drivers were killed before and after a manifest."""
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("archiving")
    archive_with_killed_drivers(brokers, folder, "manifest")
    return folder / "archive"


def numbers(frame: DataFrame) -> list[int]:
    """The records of a DataFrame."""
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


# requirement: A8 D3
def test_killed_drivers_leave_each_row_once(brokers: Cluster, spark: SparkSession, archive: Path) -> None:
    out, told = run(brokers, "archive", "verify", str(archive))
    assert out == b"", told
    found = spark.read.format("raftlog-archive").load(str(archive))
    assert numbers(found) == [*range(RECORDS)]
    with Client(",".join(brokers.urls)) as client:
        reached = {one.partition: one.archived_up_to for one in client.topics.partitions("history")}
    ends = {
        row.partition: row.end + 1
        for row in found.groupBy("partition")
        .agg({"offset": "max"})
        .withColumnRenamed("max(offset)", "end")
        .collect()
    }
    assert reached == ends, "brokers know what is archived"
    live = spark.read.format("raftlog").option("bootstrap.servers", ",".join(brokers.urls))
    expected = live.option("subscribe", "history").option("includeHeaders", "true").load()
    assert sorted(map(str, found.drop("term").collect())) == sorted(map(str, expected.collect()))


# requirement: A8
def test_a_read_takes_the_selected_partitions_and_offsets(spark: SparkSession, archive: Path) -> None:
    reader = spark.read.format("raftlog-archive").option("topics", "history").option("partitions", "1")
    found = reader.option("startingOffset", "20").option("endingOffset", "130").load(str(archive)).collect()
    assert {row.partition for row in found} == {1}
    assert 20 <= min(row.offset for row in found) <= 22
    assert 126 <= max(row.offset for row in found) < 130


# requirement: A8 D3
def test_a_killed_replay_goes_on(brokers: Cluster, client: Client, archive: Path) -> None:
    create_topic(brokers.urls[0], "again", 2, message_timestamp_type="CreateTime")
    arguments = (
        "archive",
        "replay",
        str(archive),
        "history",
        "--into",
        "again",
        "--job",
        "j",
        "--chunk",
        "10",
    )
    with command(brokers, *arguments) as process:
        assert process.stderr is not None
        for _ in range(7):
            process.stderr.readline()
        process.kill()
    seen = len(visible(client, "again"))
    assert 0 < seen < RECORDS
    run(brokers, *arguments)
    found = visible(client, "again")
    assert sorted(int(one.value) for one in found) == [*range(RECORDS)]
    assert [one.timestamp_ms - 1_000 for one in found] == [int(one.value) for one in found]
    origins = {(one.partition, dict(one.headers)["orig.offset"]) for one in found}
    assert len(origins) == RECORDS
    run(brokers, *arguments)
    assert len(visible(client, "again")) == RECORDS


# requirement: A8
def test_a_compacted_archive_reads_the_same(brokers: Cluster, spark: SparkSession, archive: Path) -> None:
    files = len(run(brokers, "archive", "list", str(archive), "--files")[0].splitlines())
    run(brokers, "archive", "compact", str(archive))
    assert len(run(brokers, "archive", "list", str(archive), "--files")[0].splitlines()) < files
    run(brokers, "archive", "verify", str(archive))
    assert numbers(spark.read.format("raftlog-archive").load(str(archive))) == [*range(RECORDS)]


# requirement: A8
def test_one_view_has_the_archive_and_the_log(
    servers: str, client: Client, spark: SparkSession, archive: Path
) -> None:
    client.topics.alter("history", config={"segment.bytes": 1_024, "retention.archive.required": "true"})
    with client.producer("history") as producer:
        for number in range(RECORDS, RECORDS + 8):
            value = f"{number:0900}"
            producer.send(value, partition=number % 2, timestamp=1_000 + number).result()
    assert drive(servers, archive.parent, "never", "manifest") == 0
    with client.producer("history") as producer:
        producer.send(str(RECORDS + 8), partition=0)
    client.topics.alter("history", config={"retention.bytes": 1_024})

    def log_starts() -> list[int]:
        return [one.log_start_offset for one in client.topics.partitions("history")]

    eventually(lambda: min(log_starts()) > 0, what="retention")
    reader = spark.read.format("raftlog").option("bootstrap.servers", servers).option("subscribe", "history")
    assert len(numbers(reader.load())) < RECORDS
    assert numbers(reader.option("archive", str(archive)).load()) == [*range(RECORDS + 9)]
