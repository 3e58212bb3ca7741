"""A Delta table: a query of Spark writes it while drivers are killed, and Spark reads it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import Cluster
from raftlog import Client
from tests.end_to_end.spark.archiving import RECORDS, archive_with_killed_drivers
from tests.end_to_end.spark.vocabulary import visible, why_no_spark
from tests.helpers.real_cluster import create_topic

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3_600)]


@pytest.fixture(scope="module")
def table(brokers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The topic ``history``, whose drivers were killed before and after a commit."""
    deltalake = pytest.importorskip("deltalake")
    reason = why_no_spark()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("delta")
    archive_with_killed_drivers(brokers, folder, "delta")
    made: DeltaTable = deltalake.DeltaTable(str(folder / "archive"))
    return made


# requirement: A8 D3
def test_killed_drivers_leave_each_row_once(brokers: Cluster, client: Client, table: DeltaTable) -> None:
    found = table.to_pyarrow_table().to_pylist()
    live = visible(client, "history")
    assert len(live) == RECORDS
    assert sorted((row["partition"], row["offset"], row["key"], row["value"]) for row in found) == sorted(
        (one.partition, one.offset, one.key, one.value) for one in live
    )
    for one in client.topics.partitions("history"):
        end = max(message.offset for message in live if message.partition == one.partition) + 1
        assert one.archived_up_to == end, "brokers know what is archived"
        assert table.transaction_version(f"raftlog/history/{one.partition}/end") == end
    listed = {Path(path).name for path in table.file_uris()}
    stored = {path.name for path in Path(table.table_uri.removeprefix("file://")).rglob("*.parquet")}
    assert listed < stored, "a killed driver has left files that do not count"


# requirement: A8 D3
def test_its_files_are_read_by_spark_and_written_to_another_topic(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, table: DeltaTable
) -> None:
    create_topic(brokers.urls[0], "restored", 2, message_timestamp_type="CreateTime")
    kept = spark.read.parquet(*table.file_uris())
    assert kept.count() == RECORDS
    rows = kept.select("key", "value", "headers", "partition", "timestamp")
    for _ in range(2):
        write = rows.write.format("raftlog").mode("append").option("bootstrap.servers", servers)
        write.options(topic="restored", txnAppId="restore", txnVersion="1").save()
    before, after = visible(client, "history"), visible(client, "restored")
    parts = [
        sorted((one.partition, one.key, one.value, one.headers, one.timestamp_ms) for one in some)
        for some in (before, after)
    ]
    assert parts[0] == parts[1]
