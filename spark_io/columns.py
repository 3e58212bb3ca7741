"""Messages as Arrow columns.

Compiled code goes over the messages of a chunk, once for each column; no Python code runs for a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from operator import attrgetter, itemgetter
from typing import Final

import pyarrow as pa

from raftlog.client.messages import Message

_TIMESTAMP_TYPES: Final = {"CreateTime": 0, "LogAppendTime": 1}  # Kafka's numbers


def record_batch(messages: Sequence[Message], schema: pa.Schema) -> pa.RecordBatch:
    """The messages of one partition, in the columns of ``schema``; no other is built."""
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
    """The headers of each message in order, names may repeat; null without any, as Kafka's source has it."""
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
