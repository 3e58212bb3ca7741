"""Archives the committed records of a topic, batch by batch, without Spark.

Decides: the offsets at which a run begins and ends, and that only one of two concurrent runs continues.
Leaves to others: detecting lost records (``spark_io.stream_progress``, as for a stream of Spark), files
(``files``), and which files count (``catalogue``).

The batches of a topic belong to the query ``write-TOPIC`` and have consecutive numbers. A run continues after
the highest number that it finds in a manifest. A manifest is created only once, so if a second run writes the
topic at this time, one of them finds the manifest of its batch in place, and fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from raftlog.client import Client
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.entries import Catalogue, Entry, check_identity
from spark_io.archive.files import SCHEMA, FileWriter
from spark_io.archive.reporting import first_record, report
from spark_io.archive.storage import Storage
from spark_io.discovery import POLL_S, discover, removed_since
from spark_io.errors import ArchiveOverlap, DataLoss
from spark_io.options import SERVERS, ReadOptions, read_options
from spark_io.partition_ends import Bounds, Removed
from spark_io.planning import Range
from spark_io.reading import read_ranges
from spark_io.stream_progress import (
    Offsets,
    behind,
    check_ends,
    check_starts,
    next_end,
    stream_ranges,
    without_removed,
)

BUFFERED_BYTES: Final = 64 << 20  # of rows that wait for their file; less than in a Spark task
READ_SCHEMA: Final = pa.schema([field for field in SCHEMA if field.name != "term"])  # of Spark's source


@dataclass(frozen=True, slots=True)
class Written:
    """The offsets of a partition that a run has archived, ``end`` excluded.

    ``records`` is the number of records in these offsets, ``bytes`` the size of their files.
    """

    target: TopicPartition
    start: int
    end: int
    records: int = 0
    bytes: int = 0


def write_options(
    server: str, topic: str, *, batch_records: int, batch_bytes: int, fails_on_loss: bool = True
) -> ReadOptions:
    """The options of a Spark stream that reads this topic. ``batch_bytes`` is an approximate bound."""
    given = {
        SERVERS: server,
        "subscribe": topic,
        "failOnDataLoss": str(fails_on_loss).lower(),
        "maxOffsetsPerTrigger": str(batch_records),
        "maxBytesPerTrigger": str(batch_bytes),
    }
    return read_options(given, is_stream=True)


class TopicWriter:
    """Archives a topic. ``written`` has the progress of each partition of the topic."""

    def __init__(self, client: Client, storage: Storage, topic: str, options: ReadOptions) -> None:
        self._client = client
        self._storage = storage
        self.topic = topic
        self._options = options
        self._at: Offsets = {}  # start offsets of the next batch
        self._topic_id: str | None = None
        self.written: dict[TopicPartition, Written] = {}

    def write(self) -> Iterator[list[Entry]]:
        """Archive the records that the topic has now; yield the files of each batch once these files count.

        Each call begins at the end of the archive. Raises ``DataLoss`` for records that were deleted before
        they were archived, and ``ArchiveOverlap`` if another process archives the topic, or if the archive
        has another topic with its name.
        """
        archived = catalogue.load(self._storage)
        self._topic_id = self._client.topics.describe(self.topic).topic_id
        check_identity(archived, self.topic, self._topic_id)
        self._at = ends_of(archived, self.topic)
        try:
            yield from self._batches(archived)
        except DataLoss as error:
            if self._is_behind():  # retention has deleted records that the other process has archived
                raise self._in_use() from error
            raise

    def _batches(self, archived: Catalogue) -> Iterator[list[Entry]]:
        bounds, removed = self._discovered(self._at)
        self._at = starts(self._at, bounds, removed, fails=self._options.fail_on_data_loss)
        for target, offset in self._at.items():
            self.written.setdefault(target, Written(target, offset, offset))
        self._report(archived)  # a process that was killed after its manifest has not reported
        batch = archived.through.get(query_of(self.topic), -1) + 1
        for ranges in self._planned(bounds, removed):
            entries = self._files(ranges)
            if entries:
                self._commit(batch, entries)
                self._count(entries)
                self._report(catalogue.load(self._storage))
                batch += 1
                yield entries

    def _planned(
        self, bounds: Mapping[TopicPartition, Bounds], removed: Mapping[TopicPartition, Removed]
    ) -> Iterator[list[Range]]:
        """The offset ranges of each batch."""
        limits, fails = self._options.limits, self._options.fail_on_data_loss
        while True:
            end = next_end(self._at, bounds, limits=limits, target=None, fails=fails, removed=removed)
            ranges = stream_ranges(self._at, end)
            if not ranges:
                return
            yield ranges
            self._at = end

    def _files(self, ranges: Sequence[Range]) -> list[Entry]:
        writer = FileWriter(self._storage, buffered_bytes=BUFFERED_BYTES)
        for rows in read_ranges(self._client, self._options, ranges, READ_SCHEMA):
            writer.add(rows)
        entries = [replace(one, topic_id=self._topic_id) for one in writer.close()]
        if self._client.topics.describe(self.topic).topic_id != self._topic_id:
            raise DataLoss(
                f"topic {self.topic} was deleted and created again while it was archived; use another archive"
            )
        return covering(entries, ranges) if self._options.fail_on_data_loss else entries

    def _commit(self, batch: int, entries: Sequence[Entry]) -> None:
        query = query_of(self.topic)
        try:
            is_new = catalogue.commit(
                self._storage, query, batch, entries, lambda gap: first_record(self._client, gap) >= gap.end
            )
        except ArchiveOverlap as error:
            raise self._in_use() from error
        if not is_new:
            raise self._in_use()

    def _is_behind(self) -> bool:
        """Whether the archive has offsets that this run has still to read."""
        ends = ends_of(catalogue.load(self._storage), self.topic)
        return any(end > self._at.get(one, end) for one, end in ends.items())

    def _in_use(self) -> ArchiveOverlap:
        return ArchiveOverlap(
            f"another process archives topic {self.topic}, and was faster; no offset is archived twice. Let "
            "only one process archive a topic, and run this command again"
        )

    def _count(self, entries: Sequence[Entry]) -> None:
        for one in entries:
            found = self.written[one.target]
            self.written[one.target] = replace(
                found,
                end=max(found.end, one.end),
                records=found.records + one.rows,
                bytes=found.bytes + one.bytes,
            )

    def _report(self, archived: Catalogue) -> None:
        report(self._client, archived, [self.topic])

    def _discovered(
        self, ends: Offsets
    ) -> tuple[dict[TopicPartition, Bounds], dict[TopicPartition, Removed]]:
        """The partitions of the topic; waits until their leaders know all archived offsets.

        Raises ``DataLoss``.
        """
        client, options = self._client, self._options
        deadline = time.monotonic() + options.fetch_timeout_s
        while behind(ends, bounds := discover(client, options, ends)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        check_ends(ends, bounds, options.fail_on_data_loss)
        return bounds, removed_since(client, options, ends, bounds)


def covering(entries: Sequence[Entry], ranges: Iterable[Range]) -> list[Entry]:
    """The files, with the last file of each partition extended to the end of the range that was read."""
    ends = {TopicPartition(one.topic, one.partition): one.end for one in ranges}
    last = {one.target: max(each.end for each in entries if each.target == one.target) for one in entries}
    return [
        replace(one, end=max(one.end, ends[one.target])) if one.end == last[one.target] else one
        for one in entries
    ]


def query_of(topic: str) -> str:
    """The name of the folder of this topic's manifests; for streams, it is the id of the Spark query."""
    return f"write-{topic}"


def ends_of(archived: Catalogue, topic: str) -> Offsets:
    """The offset at which the archive ends, for each archived partition of a topic."""
    return {one: archived.end(one) for one in archived.partitions if one.topic == topic}


def starts(
    ends: Offsets,
    bounds: Mapping[TopicPartition, Bounds],
    removed: Mapping[TopicPartition, Removed],
    *,
    fails: bool,
) -> Offsets:
    """The start offset of a run in each partition: the end of the archive, or a higher log start.

    A removed partition stays in the result unless all its records are archived. If records were deleted
    before they were archived, raises ``DataLoss`` if ``fails``.
    """
    known, _ = without_removed(ends, bounds, removed)
    check_starts(known, bounds, fails)
    begin = {one: found.start for one, found in bounds.items()}
    return {**begin, **{one: max(at, begin.get(one, at)) for one, at in known.items()}}
