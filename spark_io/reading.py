"""Reads the ranges of a task, as Arrow batches.

Decides: whether a read fails or continues if records of a planned range are deleted. Leaves to others:
fetching and its retries (``raftlog.client``), and the choice of columns (``schemas``).

Compiled code reads the messages of a chunk once for each column; no Python code runs for a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import Final

import pyarrow as pa

from raftlog.client import Client
from raftlog.client.messages import Message
from raftlog.errors import OffsetOutOfRange, PartitionNotFound, TopicNotFound
from raftlog.types import TopicPartition
from spark_io.discovery import surviving
from spark_io.errors import DataLoss
from spark_io.options import ReadOptions
from spark_io.partition_ends import is_lossless_now
from spark_io.planning import Range

FETCH_BYTES: Final = 4 << 20
ROWS_MAX: Final = 10_000  # in one Arrow batch, as in Spark's own
_TIMESTAMP_TYPES: Final = {"CreateTime": 0, "LogAppendTime": 1}  # Kafka's numbers


def read_ranges(
    client: Client, options: ReadOptions, ranges: Iterable[Range], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield all records of these ranges, each range in order. Raises ``DataLoss`` for deleted records."""
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
                    "set failOnDataLoss=false to continue without it"
                ) from error
            return
        if chunk.next_offset <= at and not wait_s:
            wait_s = options.fetch_timeout_s  # a new leader may not know yet the newest committed offset
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
        at, wait_s = chunk.next_offset, 0.0  # no wait: there may be no further record


def _behind_loss(
    client: Client, target: TopicPartition, at: int, end: int, error: OffsetOutOfRange, fails: bool
) -> int:
    """The offset after deleted records at which to read on, within the planned range. Raises ``DataLoss``."""
    log_start = error.details.get("start")
    if isinstance(log_start, int) and at < log_start:
        if is_lossless_now(client, target, at):
            return min(log_start, end)
        return min(surviving(target, at, log_start, fails), end)
    if fails:
        raise DataLoss(
            f"{target} ends below offset {at} ({error}): the topic was deleted and created again, or records "
            "were lost; set failOnDataLoss=false to continue without these records"
        ) from error
    return end


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """Messages of one partition as an Arrow batch with the columns of ``schema``."""
    return pa.RecordBatch.from_arrays([_column(messages, field) for field in schema], schema=schema)


def _column(messages: Sequence[Message], field: pa.Field) -> pa.Array:
    match field.name:
        case "key" | "value":
            return pa.array(_each(field.name, messages), pa.binary())
        case "topic" | "partition":
            return pa.repeat(pa.scalar(getattr(messages[0], field.name), field.type), len(messages))
        case "offset":
            return pa.array(_each("offset", messages), pa.int64())
        case "timestamp":
            times = pa.array(_each("timestamp_ms", messages), pa.timestamp("ms", "UTC"))
            return times.cast(field.type)
        case "timestampType":
            types = map(_TIMESTAMP_TYPES.__getitem__, map(attrgetter("timestamp_type"), messages))
            return pa.array([*types], pa.int32())
        case _:
            return _headers(messages, field.type)


def _each(name: str, messages: Sequence[Message]) -> list[object]:
    return [*map(attrgetter(name), messages)]


def _headers(messages: Sequence[Message], kind: pa.ListType) -> pa.Array:
    """The headers of each message in order; null for a message without headers, as in Kafka's source."""
    each = [*map(attrgetter("headers"), messages)]
    flat = [*chain.from_iterable(each)]
    pairs = pa.StructArray.from_arrays(
        [
            pa.array([*map(itemgetter(0), flat)], pa.string()),
            pa.array([*map(itemgetter(1), flat)], pa.binary()),
        ],
        fields=[*kind.value_type],
    )
    ends = pa.array([*accumulate(map(len, each), initial=0)], pa.int32())
    without = pa.array([*map(len, each)], pa.int32())
    return pa.ListArray.from_arrays(ends, pairs, type=kind, mask=pa.compute.equal(without, 0))
