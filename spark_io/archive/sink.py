"""The stream writer of ``format("raftlog-archive")``, with the methods that Spark calls.

Decides: how a batch is archived exactly once. Leaves to others: files (``files``), and which files count
(``catalogue``). If Spark repeats a committed batch, the sink finds the manifest of the batch, drops the rows
and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from raftlog.errors import TopicNotFound
from spark_io.archive import catalogue
from spark_io.archive.delta import DeltaArchive
from spark_io.archive.entries import Entry
from spark_io.archive.files import FileWriter
from spark_io.archive.options import ArchiveWriteOptions
from spark_io.archive.reporting import first_record, is_gone, report
from spark_io.archive.storage import open_storage
from spark_io.connections import client_of
from spark_io.errors import InvalidRows
from spark_io.planning import Range
from spark_io.rows import nullable
from spark_io.schemas import HEADERS

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
    "key": (BinaryType(),),
    "value": (BinaryType(),),
    "headers": (HEADERS,),
    "term": (IntegerType(), LongType()),
}
_OPTIONAL: Final = "term"


@dataclass(frozen=True)
class Archived(WriterCommitMessage):
    """The message of a task to the driver: the id of the query, and the files that the task has written."""

    query: str
    entries: tuple[Entry, ...]


class ArchiveWriter(DataSourceStreamArrowWriter):
    """``df.writeStream.format("raftlog-archive")``: the rows of each batch are archived once."""

    def __init__(self, options: ArchiveWriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, in the task. The files count once the batch has its manifest."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        assert query, "Spark has not set the id of the query"
        assert batch is not None, "Spark has not set the number of the batch"
        storage = open_storage(self._options.address)
        if not self._options.is_delta and catalogue.manifest_of(storage, query, int(batch)) is not None:
            for _ in iterator:
                pass
            return Archived(query, ())
        writer = FileWriter(storage)
        for rows in iterator:
            writer.add(rows)
        return Archived(query, tuple(writer.close()))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of a batch, on the driver. After a crash Spark may repeat this call for the batch.

        After the manifest is written, the end of the archive is reported to brokers. A repeated call repeats
        the report.
        """
        done = [one for one in messages if isinstance(one, Archived)]
        if not done:
            return
        entries = [entry for one in done for entry in one.entries]
        if self._options.is_delta:
            self._commit_delta(done[0].query, batchId, entries)
            return
        storage, query = open_storage(self._options.address), done[0].query
        if entries:
            catalogue.commit(storage, query, batchId, self._identified(entries), self._is_empty)
        manifest = catalogue.manifest_of(storage, query, batchId)
        if manifest is not None and self._options.servers is not None:
            topics = {one.topic for one in manifest.files}
            report(client_of(self._options.servers), catalogue.load(storage), topics)

    def _commit_delta(self, query: str, batch: int, entries: list[Entry]) -> None:
        """Add the files of a batch to the Delta table, and report their topics.

        A repeated batch has other files, but with equal offsets and so with equal topics.
        """
        servers = self._options.servers
        assert servers is not None, "a Delta table needs bootstrap.servers"
        if entries:
            client, table = client_of(servers), DeltaArchive(self._options.address)
            table.add(query, batch, entries, lambda gap: is_gone(client, gap))
            report(client, table, {one.topic for one in entries})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing after a failure: files without a manifest do not count."""

    def _identified(self, entries: list[Entry]) -> list[Entry]:
        """The entries of the files, with the present ids of their topics according to brokers."""
        ids = {topic: self._topic_id(topic) for topic in {one.topic for one in entries}}
        return [replace(one, topic_id=ids[one.topic]) for one in entries]

    def _topic_id(self, topic: str) -> str | None:
        if self._options.servers is None:
            return None
        with suppress(TopicNotFound):  # the topic was deleted after the read
            return client_of(self._options.servers).topics.describe(topic).topic_id
        return None

    def _is_empty(self, gap: Range) -> bool:
        """Whether the log has no records at these offsets, as for the end records of transactions."""
        servers = self._options.servers
        return servers is not None and first_record(client_of(servers), gap) >= gap.end


def check_columns(schema: StructType) -> None:
    """Raise ``InvalidRows`` unless rows have all columns of the source ``raftlog``, as whole records do."""
    fields = {field.name: nullable(field.dataType) for field in schema.fields}
    for name, types in _TYPES.items():
        if name not in fields:
            if name != _OPTIONAL:
                raise InvalidRows(
                    f"there is no column {name}; archive all columns of the source as they are, read with "
                    "includeHeaders=true"
                )
        elif fields[name] not in types:
            expected = " or ".join(one.simpleString() for one in types)
            raise InvalidRows(f"column {name} has the type {fields[name].simpleString()}, not {expected}")
    extra = [name for name in fields if name not in _TYPES]
    if extra:
        raise InvalidRows(f"column {extra[0]} cannot be archived; the columns are {', '.join(_TYPES)}")
