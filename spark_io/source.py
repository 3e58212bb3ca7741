"""The source for batches and streams, with the methods that Spark calls.

Planning runs on the driver, ``read`` in the workers of the executors. A reader is pickled, so it has no
connection; ``connections`` has the connections of the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from raftlog.errors import RaftlogError
from raftlog.types import TopicPartition
from spark_io import stream_offsets
from spark_io.archive import catalogue
from spark_io.archive.source import ArchiveTask, archive_tasks, spark_batches
from spark_io.archive.storage import open_storage
from spark_io.archive.view import divided, extended, offset_in_both
from spark_io.connections import client_of
from spark_io.discovery import POLL_S, OffsetOf, batch_ranges, discover, offset_asked, removed_since, resolved
from spark_io.options import ReadOptions
from spark_io.partition_ends import Bounds
from spark_io.planning import Range, tasks
from spark_io.reading import read_ranges
from spark_io.schemas import arrow_schema
from spark_io.stream_progress import (
    Offsets,
    behind,
    check_ends,
    check_starts,
    next_end,
    stream_ranges,
    waits_for_more,
    without_removed,
)

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("spark_io")


class Task(InputPartition):
    """The ranges that one Spark partition reads."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__([tuple(one) for one in ranges])


class BatchReader(DataSourceReader):
    """``spark.read.format("raftlog")``.

    Start and end offsets are looked up once, when the read is planned.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the read."""
        client = client_of(self._options.servers)
        bounds = discover(client, self._options)
        if self._options.archive is None:
            return _tasks(self._options, batch_ranges(self._options, bounds, offset_asked(client)))
        return self._with_archive(self._options.archive, bounds, offset_asked(client))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task. For a read without tasks Spark passes None."""
        if isinstance(partition, ArchiveTask) and self._options.archive is not None:
            return spark_batches(self._options.archive, partition.value, arrow_schema(self._schema))
        return _read(self._options, self._schema, partition)

    def _with_archive(
        self, address: str, bounds: Mapping[TopicPartition, Bounds], offset_of: OffsetOf
    ) -> list[InputPartition]:
        storage = open_storage(address)
        archived = catalogue.load(storage)
        both = offset_in_both(offset_of, bounds, archived, storage)
        ranges = batch_ranges(self._options, extended(bounds, archived), both)
        pieces, live = divided(ranges, bounds, archived)
        return [
            *archive_tasks(pieces, self._options.limits.max_records_per_partition),
            *_tasks(self._options, live),
        ]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream.format("raftlog")``. All positions are in the checkpoint."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._target: Offsets | None = None  # end offsets under Trigger.AvailableNow
        self._last_s: float | None = None  # time of this run's last batch with records
        self._newest: Mapping[TopicPartition, Bounds] | None = None  # bounds of the newest plan

    def initialOffset(self) -> dict[str, object]:
        """The offset before the first batch. The end of the first batch is the start of the stream."""
        return stream_offsets.BEFORE_FIRST

    def getDefaultReadLimit(self) -> ReadLimit:
        """The read limit that Spark passes to ``latestOffset``, unless the trigger reads all offsets."""
        limits = self._options.limits
        if limits.max_offsets_per_trigger is not None:
            return ReadMaxRows(limits.max_offsets_per_trigger)
        if limits.max_bytes_per_trigger is not None:
            return ReadMaxBytes(limits.max_bytes_per_trigger)
        if limits.min_offsets_per_trigger is not None:
            return ReadMinRows(limits.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on read no records that arrive after this call."""
        self._target = {one: bounds.end for one, bounds in self._discovered(known=None).items()}

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """The end of the batch that begins at ``start``."""
        client = client_of(self._options.servers)
        if stream_offsets.is_before_first(start):
            bounds = self._discovered()
            first = resolved(self._options.starting, bounds, offset_asked(client))
            check_starts(first, bounds, self._options.fail_on_data_loss)
            return stream_offsets.written(first)
        begin = stream_offsets.parsed(start)
        bounds = self._discovered_since(begin)
        removed = removed_since(client, self._options, begin, bounds)
        begin, bounds = without_removed(begin, bounds, removed)
        check_starts(begin, bounds, self._options.fail_on_data_loss)
        limits = None if isinstance(limit, ReadAllAvailable) else self._options.limits
        if limits is not None and self._target is None:
            since_last_s = None if self._last_s is None else time.monotonic() - self._last_s
            if waits_for_more(begin, bounds, limits, since_last_s):
                return start
        fails = self._options.fail_on_data_loss
        end = next_end(begin, bounds, limits=limits, target=self._target, fails=fails, removed=removed)
        if stream_ranges(begin, end):
            self._last_s = time.monotonic()
        return stream_offsets.written(end)

    def reportLatestOffset(self) -> dict[str, object] | None:
        """The newest offsets that exist now, for ``query.lastProgress``.

        Spark calls this method right after ``latestOffset``, so the bounds that ``latestOffset`` found are
        used.
        """
        newest, self._newest = self._newest, None
        found = self._discovered(known=None) if newest is None else newest
        return stream_offsets.written({one: bounds.end for one, bounds in found.items()})

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        """The tasks of a batch; a repeated batch has equal offsets."""
        ranges = stream_ranges(stream_offsets.parsed(start), stream_offsets.parsed(end))
        return _tasks(self._options, ranges) or [Task([])]  # a sink learns of each batch from its tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task."""
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, object]) -> None:
        """Commit processed offsets in the group of ``groupId``, only for display."""
        group = self._options.group_id
        offsets = stream_offsets.parsed(end)
        if group is None or not offsets:
            return
        named: Mapping[tuple[str, int], int] = {(one.topic, one.partition): at for one, at in offsets.items()}
        try:
            client_of(self._options.servers).groups.commit(group, named)
        except RaftlogError as error:
            _log.warning("group %s does not show the progress of this query: %s", group, error)

    def _discovered_since(self, begin: Offsets) -> dict[TopicPartition, Bounds]:
        """Discover the partitions; wait until their leaders know all offsets that were read before.

        Raises ``DataLoss`` after ``fetchTimeout``.
        """
        deadline = time.monotonic() + self._options.fetch_timeout_s
        while behind(begin, found := self._discovered(known=begin)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        check_ends(begin, found, self._options.fail_on_data_loss)
        return found

    def _discovered(self, known: Collection[TopicPartition] | None = ()) -> dict[TopicPartition, Bounds]:
        self._newest = found = discover(client_of(self._options.servers), self._options, known)
        return found


def _tasks(options: ReadOptions, ranges: list[Range]) -> list[InputPartition]:
    limits = options.limits
    found = tasks(
        ranges,
        min_partitions=limits.min_partitions,
        max_partitions=limits.max_partitions,
        max_records=limits.max_records_per_partition,
    )
    return [Task(one) for one in found]


def _read(options: ReadOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    ranges = [Range(*one) for one in partition.value or ()]
    client = client_of(options.servers, options.place)
    yield from read_ranges(client, options, ranges, arrow_schema(schema))
