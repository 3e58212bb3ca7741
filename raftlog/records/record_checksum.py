"""The checksum of one record, which any reader of its key, value and headers can compute.

Decides: which bytes the checksum covers. The checksum of a batch also covers its records, but as encoded
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

_LENGTHS: Final = struct.Struct(">iii")
_HEADER_LENGTHS: Final = struct.Struct(">ii")
_NEVER_RELEASE_GIL: Final = 0  # as for batches
_NULL: Final = -1

Headers = Sequence[tuple[str, bytes | None]]


def record_crc(key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
    """The CRC-32C of a record's content: its lengths, key, value, and headers in the order of their names.

    Offset and timestamp are not covered. So a producer can compute the checksum before it sends the record,
    and copies of a record have equal checksums.
    """
    lengths = _LENGTHS.pack(
        _NULL if key is None else len(key), _NULL if value is None else len(value), len(headers)
    )
    crc = crc32c(lengths + key if key else lengths, 0, _NEVER_RELEASE_GIL)
    if value:
        crc = crc32c(value, crc, _NEVER_RELEASE_GIL)
    return crc32c(_encoded(headers), crc, _NEVER_RELEASE_GIL) if headers else crc


def _encoded(headers: Headers) -> bytes:
    encoded = b""
    for name, content in _in_order(headers):
        raw = name.encode()
        lengths = _HEADER_LENGTHS.pack(len(raw), _NULL if content is None else len(content))
        encoded += b"%b%b%b" % (lengths, raw, content or b"")
    return encoded


def _in_order(headers: Headers) -> Headers:
    """Headers sorted by name, then by value with null first. Text sorts like its UTF-8 bytes."""
    if len(headers) == 1:
        return headers
    try:
        return sorted(headers)  # in most cases all names differ
    except TypeError:
        return sorted(headers, key=lambda header: (header[0], header[1] is not None, header[1] or b""))
