"""Topics of a whole broker, as a source and a sink of Spark use them; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from raftlog import Client
from raftlog.testing.waits import eventually
from spark_io.options import read_options, write_options
from spark_io.schemas import schema_of
from spark_io.source import BatchReader, StreamReader
from spark_io.staging import Staged, stage
from tests.helpers.async_tests import beside
from tests.helpers.whole_broker import whole_broker

SCHEMA = schema_of(includes_headers=True)


class Topics:
    """A broker with the topic ``orders`` of two partitions, each with the records 0 to 4."""

    def __init__(self, url: str, client: Client) -> None:
        self.url = url
        self.client = client

    def batch(self, **options: str) -> BatchReader:
        """A batch read."""
        return BatchReader(read_options(self._given(options), is_stream=False), SCHEMA)

    def stream(self, **options: str) -> StreamReader:
        """A stream of this topic, from the beginning if nothing else is said."""
        given = {"startingOffsets": "earliest", "fetchTimeout": "300ms", **options}
        return StreamReader(read_options(self._given(given), is_stream=True), SCHEMA)

    def rows(self, **options: str) -> list[dict[str, object]]:
        """All rows of a batch read."""
        reader = self.batch(**options)
        return [row for part in reader.partitions() for row in rows(reader, part)]

    def staged(self, topic: str | None, columns: dict[str, pa.Array]) -> Staged:
        """What a task makes of rows."""
        given = {"bootstrap.servers": self.url, **({} if topic is None else {"topic": topic})}
        options = write_options(given, is_stream=False)
        return stage(self.client, options, "spark-q", "0.0", [pa.RecordBatch.from_pydict(columns)])

    def fill(self, count: int, *, partitions: int = 2) -> None:
        """Records in each partition."""
        with self.client.producer("orders") as producer:
            for number in range(partitions * count):
                producer.send(str(number), partition=number % partitions)

    def remove_last(self, partition: int = 1) -> None:
        """Decommission the last partition, delete its records, and wait until it is removed."""
        self.client.topics.decommission_partitions("orders", [partition])
        self.empty(partition)
        eventually(
            lambda: self.client.topics.describe("orders").partitions == partition,
            what="the partition is removed",
        )

    def empty(self, partition: int) -> None:
        """Delete all records of a partition."""
        end = self.client.topics.partitions("orders")[partition].high_watermark
        self.client.partitions.delete_before("orders", partition, end)

    def _given(self, options: dict[str, str]) -> dict[str, str]:
        return {"bootstrap.servers": self.url, "subscribe": "orders", "includeHeaders": "true", **options}


def with_topics(test: Callable[[Topics], None]) -> Callable[[], None]:
    """Run a test on a thread, beside a broker."""
    return with_partitions(2)(test)


def with_partitions(count: int) -> Callable[[Callable[[Topics], None]], Callable[[], None]]:
    """The same for another number of partitions."""

    def decorated(test: Callable[[Topics], None]) -> Callable[[], None]:
        def run() -> None:
            with beside(whole_broker(count)) as broker, Client(broker.url) as client:
                topics = Topics(broker.url, client)
                topics.fill(5, partitions=count)
                test(topics)

        run.__name__ = test.__name__
        return run

    return decorated


def offsets(*each: int, topic: str = "orders") -> str:
    """The JSON with an offset for each partition."""
    return json.dumps({topic: {str(number): one for number, one in enumerate(each)}})


def rows(reader: BatchReader | StreamReader, part: InputPartition) -> Iterator[dict[str, object]]:
    """The rows of one task."""
    for batch in reader.read(part):
        yield from batch.to_pylist()
