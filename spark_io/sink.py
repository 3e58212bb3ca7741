"""The sink, as Spark calls it: batch and stream.

``write`` runs in the tasks, ``commit`` and ``abort`` on the driver, each in a process of its own: all that
one knows of the other is in the messages. Every streaming batch makes another writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_io.commits import Driver, abandon, commit
from spark_io.connections import client_of
from spark_io.errors import SinkAhead
from spark_io.options import WriteOptions
from spark_io.staging import Staged, send_at_once, stage

if TYPE_CHECKING:
    import pyarrow as pa

Messages = list[WriterCommitMessage | None]


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: all rows become visible together, or none.

    With ``txnAppId`` and ``txnVersion`` a write whose version is committed, or below one that is, changes
    nothing. Without them a job that is run again writes again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._key = f"spark-app-{options.app_id}" if options.app_id else f"spark-job-{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        return _write(self._options, self._key, iterator)

    def commit(self, messages: Messages) -> None:
        """On the driver, once all tasks have ended."""
        client, handles = client_of(self._options.servers), _handles(_staged(messages))
        timeout_s = self._options.commit_timeout_s
        commit(client, self._key, self._options.version, handles, timeout_s=timeout_s)

    def abort(self, messages: Messages) -> None:
        """On the driver, after a failure; also after a commit whose outcome Spark did not see."""
        abandon(client_of(self._options.servers), self._key, _handles(_staged(messages)))


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: the rows of each batch become visible together, and once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task. The sink is that of the query, whose id is in its checkpoint."""
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.jobGroup.id")
        assert query, "Spark has not said which query this is"
        assert run, "Spark has not said which run of the query this is"
        key = f"spark-{query}" if self._options.sink_id is None else f"spark-sink-{self._options.sink_id}"
        return replace(_write(self._options, key, iterator, tasks=f"{query}."), owner=query, run=run)

    def commit(self, messages: Messages, batchId: int) -> None:
        """On the driver, once all tasks have ended, and again if it ended before Spark had noted it."""
        staged = _staged(messages)
        if not staged or not staged[0].key:
            return
        client, key = client_of(self._options.servers), staged[0].key
        driver = Driver(staged[0].owner, staged[0].run, self._options.takes_over)
        timeout_s = self._options.commit_timeout_s
        newest = commit(client, key, batchId, _handles(staged), timeout_s=timeout_s, driver=driver)
        if newest > batchId:
            raise SinkAhead(
                f"batch {batchId} of {key} is over, the sink has committed batch {newest}: another driver "
                "runs this query, or the checkpoint was restored from a copy; stop this query, or use a new "
                "checkpointLocation and startingOffsets"
            )

    def abort(self, messages: Messages, batchId: int) -> None:
        """On the driver, after a failure; also after a commit whose outcome Spark did not see."""
        staged = _staged(messages)
        if staged and staged[0].key:
            client, tasks = client_of(self._options.servers), f"{staged[0].owner}."
            abandon(client, staged[0].key, _handles(staged), tasks=tasks)


def _write(options: WriteOptions, key: str, batches: Iterator[pa.RecordBatch], *, tasks: str = "") -> Staged:
    client = client_of(options.servers)
    if options.delivery == "at_least_once":
        return send_at_once(client, options, batches)
    context = _context()
    return stage(client, options, key, f"{tasks}{context.partitionId()}.{context.attemptNumber()}", batches)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "write runs in a task"
    return context


def _staged(messages: Messages) -> list[Staged]:
    """Those of tasks that have ended; the others have none."""
    return [message for message in messages if isinstance(message, Staged)]


def _handles(staged: Sequence[Staged]) -> list[str]:
    return [one.handle for one in staged if one.handle is not None]
