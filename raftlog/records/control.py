"""Control batches: records in a partition's log that brokers write for brokers.

Decides: the type of a control batch, and the format of each type: a leader change record (Kafka's
``LeaderChangeMessage``), the marker that ends a transaction (Kafka's ``EndTxnMarker``), a membership, a log
start, an archived offset and a seal. Leaves to others: when a leader writes a control batch, and its effect.
Each control batch has one record, at one offset; consumers skip it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection
from typing import NamedTuple

from raftlog.errors import CorruptBatch
from raftlog.records.batch import (
    CONTROL_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    Batch,
    BatchHeader,
    encode_batch,
    parse_header,
)
from raftlog.records.builder import BatchBuilder, Record
from raftlog.records.reader import read_records
from raftlog.types import NodeId

_KEY = struct.Struct(">hh")  # version, type
_LEADER_CHANGE = struct.Struct(">hi3B")  # version, leader, voters, granting voters, tagged fields
_MARKER = struct.Struct(">hiq")  # version, coordinator epoch; specific to raftlog: the leader's log start
_MEMBERSHIP = struct.Struct(">h3H")  # version, number of voters, learners and outgoing voters; then their ids
_NODE = struct.Struct(">Q")
_LOG_START = struct.Struct(">hq")  # version, offset
_ARCHIVED = struct.Struct(">hq?")  # version, offset, whether the offset may be below the previous one
_SEAL = struct.Struct(">h?q")  # version, whether the log is sealed, the metadata version of that decision
_VERSION = 0
_EMPTY_ARRAY = 1  # a compact array's length is stored plus one
_NO_TAGGED_FIELDS = 0


class ControlType(enum.IntEnum):
    """The type of a control record; the number is in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    MEMBERSHIP = 100  # specific to raftlog; Kafka counts up from 0
    LOG_START = 101
    ARCHIVED = 102
    SEAL = 103


class Marker(NamedTuple):
    """The end of a transaction in one partition."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    log_start: int  # of the leader that wrote the marker: state about earlier offsets may be forgotten


class Archived(NamedTuple):
    """An archived offset: all records below it are archived.

    A lower offset counts only with ``may_lower``.
    """

    offset: int
    may_lower: bool = False


class Seal(NamedTuple):
    """Whether the log refuses producers' records from this batch on.

    Of several seals, the one with the newest metadata ``version`` counts.
    """

    is_sealed: bool
    version: int


class MemberLists(NamedTuple):
    """The membership of a group, as lists in a control record."""

    voters: frozenset[NodeId]
    learners: frozenset[NodeId]
    outgoing: frozenset[NodeId]


def leader_change_batch(*, base_offset: int, leader_epoch: int, leader: NodeId, timestamp_ms: int) -> Batch:
    """The batch that a new leader appends to commit entries of earlier leaders.

    The lists of voters in the message stay empty: the membership has its own record.
    """
    value = _LEADER_CHANGE.pack(_VERSION, leader, _EMPTY_ARRAY, _EMPTY_ARRAY, _NO_TAGGED_FIELDS)
    return _control_batch(ControlType.LEADER_CHANGE, value, base_offset, leader_epoch, timestamp_ms)


def marker_batch(marker: Marker, *, timestamp_ms: int) -> Batch:
    """The batch that ends a transaction; the leader sets offset and epoch."""
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    value = _MARKER.pack(_VERSION, marker.coordinator_epoch, marker.log_start)
    producer = marker.producer_id, marker.producer_epoch
    return _control_batch(kind, value, 0, 0, timestamp_ms, producer)


def marker_in(batch: Batch) -> Marker | None:
    """The marker in a batch; None for a batch that is no marker. Raises ``CorruptBatch``."""
    header = batch.header
    if not (header.is_control and header.is_transactional):
        return None
    key, value = _control_record(batch)
    if value is None or len(value) != _MARKER.size:
        raise CorruptBatch("records: a transaction marker has the wrong length")
    _, coordinator_epoch, log_start = _MARKER.unpack(value)
    is_commit = _type_of(key) is ControlType.COMMIT
    return Marker(header.producer_id, header.producer_epoch, is_commit, coordinator_epoch, log_start)


def membership_batch(
    *, base_offset: int, leader_epoch: int, members: MemberLists, timestamp_ms: int
) -> Batch:
    """The batch that sets a group's membership, in force from this batch on."""
    value = encode_members(members)
    return _control_batch(ControlType.MEMBERSHIP, value, base_offset, leader_epoch, timestamp_ms)


def encode_members(members: MemberLists) -> bytes:
    """Encode the value of a membership record: equal members give equal bytes."""
    lists: list[Collection[NodeId]] = [sorted(nodes) for nodes in members]
    head = _MEMBERSHIP.pack(_VERSION, *map(len, lists))
    return head + b"".join([_NODE.pack(node) for nodes in lists for node in nodes])


def decode_members(value: bytes | memoryview) -> MemberLists:
    """Decode the value of a membership record. Raises ``CorruptBatch``."""
    if len(value) < _MEMBERSHIP.size:
        raise CorruptBatch(f"membership: {len(value)} bytes are too few for a membership")
    version, *counts = _MEMBERSHIP.unpack_from(value)
    if version != _VERSION:
        raise CorruptBatch(f"membership: version {version} is unknown; this release reads {_VERSION}")
    if len(value) != _MEMBERSHIP.size + _NODE.size * sum(counts):
        raise CorruptBatch(f"membership: {len(value)} bytes do not hold {counts} members")
    nodes = [NodeId(node) for (node,) in _NODE.iter_unpack(value[_MEMBERSHIP.size :])]
    learners_at, outgoing_at = counts[0], counts[0] + counts[1]
    return MemberLists(
        frozenset(nodes[:learners_at]),
        frozenset(nodes[learners_at:outgoing_at]),
        frozenset(nodes[outgoing_at:]),
    )


def members_in(batch: Batch) -> MemberLists | None:
    """The membership in a batch; None for a batch that sets no membership. Raises ``CorruptBatch``."""
    if not batch.header.is_control:
        return None
    key, value = _control_record(batch)
    if _type_of(key) is not ControlType.MEMBERSHIP:
        return None
    return decode_members(value or b"")


def log_start_batch(log_start: int, *, timestamp_ms: int) -> Batch:
    """The batch that raises the log start to ``log_start``; the leader sets offset and epoch."""
    value = _LOG_START.pack(_VERSION, log_start)
    return _control_batch(ControlType.LOG_START, value, 0, 0, timestamp_ms)


def log_start_in(batch: Batch) -> int | None:
    """The log start in a batch; None for a batch that sets no log start. Raises ``CorruptBatch``."""
    header = batch.header
    if not header.is_control or header.is_transactional:
        return None
    key, value = _control_record(batch)
    if _type_of(key) is not ControlType.LOG_START:
        return None
    if value is None or len(value) != _LOG_START.size:
        raise CorruptBatch("records: a log start has the wrong length")
    version, log_start = _LOG_START.unpack(value)
    if version != _VERSION:
        raise CorruptBatch(f"log start: version {version} is unknown; this release reads {_VERSION}")
    return int(log_start)


def archived_batch(archived: Archived, *, timestamp_ms: int) -> Batch:
    """The batch that sets the archived offset; the leader sets offset and epoch."""
    value = _ARCHIVED.pack(_VERSION, *archived)
    return _control_batch(ControlType.ARCHIVED, value, 0, 0, timestamp_ms)


def archived_in(batch: Batch) -> Archived | None:
    """The archived offset in a batch; None for a batch that sets none. Raises ``CorruptBatch``."""
    header = batch.header
    if not header.is_control or header.is_transactional:
        return None
    key, value = _control_record(batch)
    if _type_of(key) is not ControlType.ARCHIVED:
        return None
    if value is None or len(value) != _ARCHIVED.size:
        raise CorruptBatch("records: an archived offset has the wrong length")
    version, offset, may_lower = _ARCHIVED.unpack(value)
    if version != _VERSION:
        raise CorruptBatch(f"archived offset: version {version} is unknown; this release reads {_VERSION}")
    return Archived(offset, may_lower)


def seal_batch(seal: Seal, *, timestamp_ms: int) -> Batch:
    """The batch that seals a log against producers' records, or removes the seal.

    The leader sets offset and epoch.
    """
    return _control_batch(ControlType.SEAL, _SEAL.pack(_VERSION, *seal), 0, 0, timestamp_ms)


def seal_in(batch: Batch) -> Seal | None:
    """The seal in a batch; None for a batch that sets none. Raises ``CorruptBatch``."""
    header = batch.header
    if not header.is_control or header.is_transactional:
        return None
    key, value = _control_record(batch)
    if _type_of(key) is not ControlType.SEAL:
        return None
    if value is None or len(value) != _SEAL.size:
        raise CorruptBatch("records: a seal has the wrong length")
    format_version, is_sealed, version = _SEAL.unpack(value)
    if format_version != _VERSION:
        raise CorruptBatch(f"seal: version {format_version} is unknown; this release reads {_VERSION}")
    return Seal(is_sealed, version)


def control_type(batch: Batch) -> ControlType:
    """The type of a control batch. Raises ``CorruptBatch`` for batches of users and for unknown types."""
    if not batch.header.is_control:
        raise CorruptBatch("attributes: this is not a control batch")
    key, _ = _control_record(batch)
    return _type_of(key)


def _control_batch(
    kind: ControlType,
    value: bytes,
    base_offset: int,
    leader_epoch: int,
    time_ms: int,
    producer: tuple[int, int] | None = None,
) -> Batch:
    """A batch with one control record; ``producer``: id and epoch of a transaction's producer."""
    key = _KEY.pack(_VERSION, kind)
    attributes = CONTROL_BIT if producer is None else CONTROL_BIT | TRANSACTIONAL_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=time_ms,
        max_timestamp=time_ms,
        producer_id=-1 if producer is None else producer[0],
        producer_epoch=-1 if producer is None else producer[1],
        base_sequence=-1,
        record_count=1,
    )
    builder = BatchBuilder()
    builder.append(Record(value=value, key=key, timestamp_ms=time_ms))
    data = encode_batch(header, builder.body())
    return Batch(data, parse_header(data))


def _control_record(batch: Batch) -> tuple[bytes, bytes | None]:
    records = read_records(batch)
    key = records[0].key if len(records) == 1 else None
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch("records: a control batch must hold one record, with version and type as its key")
    return key, records[0].value


def _type_of(key: bytes) -> ControlType:
    _, number = _KEY.unpack_from(key)
    try:
        return ControlType(number)
    except ValueError as error:
        raise CorruptBatch(f"records: control type {number} is unknown") from error
