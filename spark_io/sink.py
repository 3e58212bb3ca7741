"""The sink for batches and streams, with the methods that Spark calls.

``write`` runs in the tasks, ``commit`` and ``abort`` run on the driver. Each call runs in another process, so
the calls share only the messages of the tasks. Every streaming batch creates a new writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from raftlog.errors import InvalidRecord, PartitionNotFound, RecordTooLarge, TopicNotFound
from spark_io.commits import abandon, ahead, begin_run, commit
from spark_io.connections import client_of
from spark_io.errors import InvalidRows, SinkAhead, SinkGap, SinkInUse
from spark_io.options import WriteOptions
from spark_io.staging import Staged, send_at_once, stage
from spark_io.targets import no_such_topic

if TYPE_CHECKING:
    import pyarrow as pa

Messages = list[WriterCommitMessage | None]
_QUERY: Final = "sql.streaming.queryId"  # in the checkpoint
_RUN: Final = "spark.jobGroup.id"  # one start of the query
_BATCH: Final = "streaming.sql.batchId"
_SINK: Final = (SinkInUse, SinkGap, SinkAhead)
_ROWS: Final = (InvalidRows, InvalidRecord, RecordTooLarge, PartitionNotFound)


@dataclass(frozen=True)
class Refused(WriterCommitMessage):
    """The message of a task that no other attempt can complete: the driver raises the error.

    After an exception Spark would repeat the task, and print each attempt.
    """

    error: Exception


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: all rows become visible together, or none.

    With ``txnAppId`` and ``txnVersion`` a write changes nothing if its version, or a later one, is committed.
    Without them a repeated job writes its rows again.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._key = f"spark-app-{options.app_id}" if options.app_id else f"spark-job-{uuid4()}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task. Runs in the task."""
        return _told(self._options, lambda: self._written(iterator))

    def _written(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        client, options = client_of(self._options.servers), self._options
        if options.delivery == "at_least_once":
            return send_at_once(client, options, iterator)
        return stage(client, options, self._key, _task(), iterator)

    def commit(self, messages: Messages) -> None:
        """Commit the rows of all tasks. Runs on the driver, once all tasks have ended."""
        client, transactions = client_of(self._options.servers), _transactions(_agreed(messages))
        timeout_s = self._options.commit_timeout_s
        commit(client, self._key, self._options.version, transactions, timeout_s=timeout_s)

    def abort(self, messages: Messages) -> None:
        """Abort the rows of all tasks. Runs on the driver after a failure, or a commit without an outcome."""
        abandon(client_of(self._options.servers), self._key, _transactions(_staged(messages)))


class StreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: the rows of each batch become visible together, and once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, in the task. Without ``sink_id``, the query's id identifies the sink."""
        return _told(self._options, lambda: self._written(iterator))

    def _written(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        client, options = client_of(self._options.servers), self._options
        if options.delivery == "at_least_once":
            return send_at_once(client, options, iterator)
        query, run_name, batch = (_property(name) for name in (_QUERY, _RUN, _BATCH))
        key = f"spark-{query}" if options.sink_id is None else f"spark-sink-{options.sink_id}"
        run, is_committed = begin_run(
            client, key, int(batch), owner=query, run=run_name, takes_over=options.takes_over
        )
        if is_committed:
            for _ in iterator:  # Spark sends the rows again, which are committed
                pass
            return Staged(key, None, 0, run, is_committed=True)
        return stage(client, options, key, f"{query}.{_task()}", iterator, run=run)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Commit the rows of a batch, on the driver.

        After a crash Spark may repeat this call for the batch.
        """
        staged = _agreed(messages)
        if not staged or staged[0].run is None or staged[0].is_committed:
            return
        client, key, run = client_of(self._options.servers), staged[0].key, staged[0].run
        timeout_s = self._options.commit_timeout_s
        newest = commit(client, key, batchId, _transactions(staged), timeout_s=timeout_s, run=run)
        if newest > batchId:
            raise ahead(key, batchId, newest)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Abort the rows of all tasks. Runs on the driver after a failure, or a commit without an outcome."""
        staged = _staged(messages)
        if staged and staged[0].run is not None:
            abandon(client_of(self._options.servers), staged[0].key, _transactions(staged), run=staged[0].run)


def _property(name: str) -> str:
    """The value of a local property that Spark sets for the batch of this task."""
    found = _context().getLocalProperty(name)
    assert found, f"Spark has not set the local property {name}"
    return found


def _task() -> str:
    context = _context()
    return f"{context.partitionId()}.{context.attemptNumber()}"


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "write runs in a task"
    return context


def _told(options: WriteOptions, write: Callable[[], Staged]) -> WriterCommitMessage:
    """The message of a task to the driver: the result of ``write``, or the error that the driver raises."""
    try:
        return write()
    except TopicNotFound as error:
        return Refused(no_such_topic(client_of(options.servers), error))
    except (*_SINK, *_ROWS) as error:
        return Refused(error)


def _agreed(messages: Messages) -> list[Staged]:
    """The staged rows of all tasks. Raises the error of a task that was refused."""
    for message in messages:
        if isinstance(message, Refused):
            raise message.error
    return _staged(messages)


def _staged(messages: Messages) -> list[Staged]:
    """The ``Staged`` messages of the tasks. There is no message of a task that has not ended."""
    return [message for message in messages if isinstance(message, Staged)]


def _transactions(staged: Sequence[Staged]) -> list[str]:
    return [one.transaction for one in staged if one.transaction is not None]
