"""Batches for tests of storage: valid in every header field and checksum, with any body."""

from __future__ import annotations

import struct

from raftlog.records.batch import BATCH_OVERHEAD, HEADER_BYTES, Batch, checksum, parse_header
from raftlog.records.control import leader_change_batch
from raftlog.types import NodeId

_HEADER = struct.Struct(">qiibIhiqqqhii")


def storage_batch(
    base: int, count: int = 1, *, epoch: int = 1, timestamp_ms: int = 0, body: bytes = b"body"
) -> Batch:
    """A batch of ``count`` offsets from ``base`` on."""
    length = HEADER_BYTES + len(body) - BATCH_OVERHEAD
    fields = [base, length, epoch, 2, 0, 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count]
    fields[4] = checksum(_HEADER.pack(*fields) + body)
    data = _HEADER.pack(*fields) + body
    return Batch(data, parse_header(data))


def leader_change(base: int, timestamp_ms: int) -> Batch:
    """What a new leader writes for the other brokers."""
    return leader_change_batch(base_offset=base, leader_epoch=1, leader=NodeId(1), timestamp_ms=timestamp_ms)
