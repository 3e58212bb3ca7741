"""Reads the ranges of a task, as Arrow batches.

Decides: what happens where records of a planned range are gone. Leaves to others: fetching and its retries
(``raftlog.client``), and the columns (``columns``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from raftlog.client import Client
from raftlog.client.messages import Message
from raftlog.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from raftlog.types import TopicPartition
from spark_io.columns import record_batch
from spark_io.discovery import surviving
from spark_io.errors import DataLoss
from spark_io.options import ReadOptions
from spark_io.partition_ends import is_lossless_now
from spark_io.planning import Range

FETCH_BYTES: Final = 4 << 20
ROWS_MAX: Final = 10_000  # of one Arrow batch, as Spark's own


def read_ranges(
    client: Client, options: ReadOptions, ranges: Iterable[Range], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """All records of these ranges, each range in order. Raises ``DataLoss``."""
    for one in ranges:
        for messages in _read_range(client, options, one):
            for first in range(0, len(messages), ROWS_MAX):
                yield record_batch(messages[first : first + ROWS_MAX], schema)


def _read_range(client: Client, options: ReadOptions, one: Range) -> Iterator[list[Message]]:
    target = TopicPartition(one.topic, one.partition)
    partition = client.partition(one.topic, one.partition)
    fails = options.fail_on_data_loss
    at, wait_s = one.start, 0.0
    while at < one.end:
        try:
            wait = f"{round(wait_s * 1_000)}ms"
            chunk = partition.read(at, max_bytes=FETCH_BYTES, wait=wait, isolation=options.isolation)
        except OffsetOutOfRange as error:
            at = _behind_loss(client, target, at, one.end, error, fails)
            continue
        except (TopicNotFound, PartitionNotFound) as error:
            if fails and not is_lossless_now(client, target, at):
                raise DataLoss(
                    f"{target} is deleted, with its offsets {at} to {one.end - 1}; "
                    "set failOnDataLoss=false to go on without it"
                ) from error
            return
        if chunk.next_offset <= at and not wait_s:
            wait_s = options.fetch_timeout_s  # a new leader may not know yet what is committed
            continue
        if chunk.next_offset <= at:
            raise TimeoutError(
                f"{target}: no record from offset {at} on within {options.fetch_timeout_s:g} s, the "
                f"fetchTimeout, but the range ends at {one.end}; see `raftlog cluster health`"
            )
        messages = chunk.messages
        if chunk.next_offset > one.end:
            messages = [message for message in messages if message.offset < one.end]
        if messages:
            yield messages
        at, wait_s = chunk.next_offset, 0.0  # a read that waits for a record would wait behind the last one


def _behind_loss(
    client: Client, target: TopicPartition, at: int, end: int, error: OffsetOutOfRange, fails: bool
) -> int:
    """The offset at which to read on, within the planned range. Raises ``DataLoss``."""
    log_start = error.details.get("start")
    if isinstance(log_start, int) and at < log_start:
        if is_lossless_now(client, target, at):
            return min(log_start, end)
        return min(surviving(target, at, log_start, fails), end)
    if fails:
        raise DataLoss(
            f"{target} ends below offset {at} ({error}): the topic was deleted and created again, or a part "
            "of it was lost; set failOnDataLoss=false to go on without these records"
        ) from error
    return end
