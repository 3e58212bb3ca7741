"""Rows of topics for tests of archives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.entries import Entry
from spark_io.archive.files import SCHEMA, read_batches, write_file
from spark_io.archive.storage import Storage
from spark_io.planning import Range

ORDERS = TopicPartition("orders", 0)


def rows(offsets: Iterable[int], target: TopicPartition = ORDERS) -> pa.RecordBatch:
    """Records with everything a record may have."""
    found = [
        {
            "topic": target.topic,
            "partition": target.partition,
            "offset": at,
            "timestamp": 1_000 + at,
            "timestampType": at % 2,
            "key": None if at % 3 == 0 else b"k%d" % at,
            "value": None if at % 5 == 0 else b"\x00\xff%d" % at,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}] if at % 2 else None,
            "term": 7,
        }
        for at in offsets
    ]
    return pa.RecordBatch.from_pylist(found, SCHEMA)


def file_of(storage: Storage, offsets: Iterable[int], target: TopicPartition = ORDERS) -> Entry:
    """A file that no manifest lists."""
    return write_file(storage, target, pa.Table.from_batches([rows(offsets, target)]))


def archived(
    storage: Storage,
    batch: int,
    *ranges: tuple[int, int],
    query: str = "q",
    gaps_are_empty: bool = False,
    topic_id: str | None = None,
) -> bool:
    """Commit a batch with a file for each range of ``ORDERS``."""
    entries = [replace(file_of(storage, range(start, end)), topic_id=topic_id) for start, end in ranges]
    return catalogue.commit(storage, query, batch, entries, lambda _: gaps_are_empty)


def offsets(
    storage: Storage, start: int = 0, end: int = 1 << 40, target: TopicPartition = ORDERS
) -> list[int]:
    """What a reader of the archive gets of a partition."""
    pieces = catalogue.load(storage).pieces(Range(target.topic, target.partition, start, end))
    return [at for batch in read_batches(storage, pieces) for at in batch.column("offset").to_pylist()]
