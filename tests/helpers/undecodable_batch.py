"""A batch with a valid checksum and undecodable records."""

from __future__ import annotations

from raftlog.records.batch import Codec, checksum
from raftlog.records.builder import Record, build_batch

FIRST_RECORD, SECOND_RECORD = 61, 73


def undecodable_batch(at: int) -> bytes:
    """A batch of three records that cannot be decoded from this byte on."""
    batch = bytearray(build_batch([Record(b"value")] * 3, codec=Codec.NONE, timestamp_ms=1))
    batch[at : at + 9] = b"\xff" * 9
    batch[17:21] = checksum(batch).to_bytes(4, "big")
    return bytes(batch)
