"""Control batches: what brokers write for brokers into a partition's log.

Decides: how a new leader's record looks (Kafka's ``LeaderChangeMessage``) and which kind a control
batch is of. Leaves to others: when a leader writes one. Each takes one offset; consumers skip them.
"""

from __future__ import annotations

import enum
import struct

from raftlog.errors import CorruptBatch
from raftlog.records.batch import CONTROL_BIT, MAGIC, Batch, BatchHeader, encode_batch, parse_header
from raftlog.records.builder import BatchBuilder, Record
from raftlog.records.reader import read_records
from raftlog.types import NodeId

_KEY = struct.Struct(">hh")  # version, type
_LEADER_CHANGE = struct.Struct(">hi3B")  # version, leader, voters, granting voters, tagged fields
_VERSION = 0
_EMPTY_ARRAY = 1  # a compact array's length is stored plus one
_NO_TAGGED_FIELDS = 0


class ControlType(enum.IntEnum):
    """What a control record says; the number stands in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2


def leader_change_batch(*, base_offset: int, leader_epoch: int, leader: NodeId, timestamp_ms: int) -> Batch:
    """The batch that a new leader appends to commit what earlier leaders left.

    The lists of voters in the message stay empty: the metadata log holds the membership.
    """
    key = _KEY.pack(_VERSION, ControlType.LEADER_CHANGE)
    value = _LEADER_CHANGE.pack(_VERSION, leader, _EMPTY_ARRAY, _EMPTY_ARRAY, _NO_TAGGED_FIELDS)
    header = BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, CONTROL_BIT, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1
    )
    builder = BatchBuilder()
    builder.append(Record(value=value, key=key, timestamp_ms=timestamp_ms))
    data = encode_batch(header, builder.body())
    return Batch(data, parse_header(data))


def control_type(batch: Batch) -> ControlType:
    """What a control batch says. Raises ``CorruptBatch`` when it is not one, or of an unknown type."""
    if not batch.header.is_control:
        raise CorruptBatch("attributes: this is not a control batch")
    records = read_records(batch)
    key = records[0].key if len(records) == 1 else None
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("records: a control batch holds one record, whose key is version and type")
    _, number = _KEY.unpack_from(key)
    try:
        return ControlType(number)
    except ValueError as error:
        raise CorruptBatch(f"records: control type {number} is unknown") from error
