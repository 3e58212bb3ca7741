"""Job receipts: texts by which a worker identifies a delivered job. Pure.

A receipt has the partition, the offset and the lease id. The lease id is random and stored with the job:
clients cannot guess it, and every later coordinator knows it. A checksum detects receipts of other queues,
and typing errors.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Final

from queues.requests import Token
from raftlog.errors import InvalidRequest

LEASE_BYTES: Final = 8
_FIELDS: Final = struct.Struct(">IQ8s")  # partition, offset, lease
_CHECK: Final = struct.Struct(">I")


def receipt_of(topic: str, group: str, token: Token) -> str:
    """Encode a receipt as a text of 32 characters."""
    fields = _FIELDS.pack(token.partition, token.offset, token.lease)
    return base64.urlsafe_b64encode(fields + _CHECK.pack(_sum(topic, group, fields))).decode()


def token_of(topic: str, group: str, receipt: str) -> Token:
    """Decode a receipt of a queue. Raises ``InvalidRequest`` for a text that is no receipt of the queue."""
    try:
        data = base64.b64decode(receipt.encode(), b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    fields, check = data[: _FIELDS.size], data[_FIELDS.size :]
    if len(fields) != _FIELDS.size or check != _CHECK.pack(_sum(topic, group, fields)):
        raise InvalidRequest(
            f"receipts: {receipt[:64]!r} is no receipt of topic {topic} and group {group}; send the receipt "
            "of a job unchanged, to the queue that delivered the job",
            field="receipts",
        )
    return Token(*_FIELDS.unpack(fields))


def _sum(topic: str, group: str, fields: bytes) -> int:
    return zlib.crc32(fields, zlib.crc32(f"{topic}/{group}".encode()))
