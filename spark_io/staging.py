"""Stages the rows of a sink's task: the rows are sent, and become visible with the commit of the batch.

Decides: the transactional id of a task. Leaves to others: the commit (``commits``).

Each task writes in its own transaction and prepares it, so no row is visible before the driver commits all
transactions at once. The transactional id consists of the key of the sink, the number of the Spark partition
and the number of the attempt. A repeated batch uses the ids of the previous run, which fences the tasks of
that run and ends their open transactions. The attempt is part of the id because two attempts of one task may
run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from spark_io.commits import Run, begun
from spark_io.options import WriteOptions
from spark_io.rows import Rows, rows_of

if TYPE_CHECKING:
    import pyarrow as pa

    from raftlog.client import Client
    from raftlog.client.blocking_producer import Producer, Transaction
    from raftlog.client.options import ProducerSettings


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The message of a task to the driver.

    ``transaction`` is None if the task had no rows; ``run`` is None if the write is not a stream.
    """

    key: str
    transaction: str | None
    count: int
    run: Run | None = None
    is_committed: bool = False  # the batch was committed before this task began


def stage(
    client: Client,
    options: WriteOptions,
    key: str,
    task: str,
    batches: Iterable[pa.RecordBatch],
    *,
    run: Run | None = None,
) -> Staged:
    """Send all rows in one transaction, and prepare it. No row is visible yet."""
    some_rows = rows_of(batches, options.topic)
    first = next(some_rows, None)
    if first is None:
        return Staged(key, None, 0, run)
    name = f"{key}~{task}"
    with ExitStack() as stack:
        producer = stack.enter_context(_producer(client, options, transactional_id=name, run=run))
        transaction = stack.push(begun(client, producer, name))
        count = _send_all(transaction, first)
        for rows in some_rows:
            count += _send_all(transaction, rows)
        return Staged(key, transaction.prepare(timeout=options.staged_timeout), count, run)


def send_at_once(client: Client, options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Staged:
    """Send all rows, visible at once. A repeated task stores its rows twice."""
    count = 0
    with _producer(client, options, transactional_id=None) as producer:
        for rows in rows_of(batches, options.topic):
            count += _send_all(producer, rows)
    return Staged("", None, count)


def _producer(
    client: Client, options: WriteOptions, *, transactional_id: str | None, run: Run | None = None
) -> Producer:
    run_epoch = None if run is None else run.epoch
    task: ProducerSettings = {"transactional_id": transactional_id, "run_epoch": run_epoch}
    return client.producer(**options.producer | task)


def _send_all(target: Producer | Transaction, some: Iterable[Rows]) -> int:
    count = 0
    for rows in some:
        target.send_all(rows.records, topic=rows.topic, partition=rows.partition)
        count += len(rows.records)
    return count
