"""The checksum of one record, which any reader of its key, value and headers can compute.

Decides: over which bytes it is taken. That of a batch covers these as well, but takes the batch's own bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

_LENGTHS: Final = struct.Struct(">iii")
_HEADER_LENGTHS: Final = struct.Struct(">ii")
_NEVER_RELEASE_GIL: Final = 0  # as with batches
_NULL: Final = -1


def record_crc(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> int:
    """The CRC-32C of a record's content: its lengths, key, value, and headers in the order of their names.

    Offset and timestamp do not count, so a producer can compute it, and a copy of the record has the same.
    """
    lengths = _LENGTHS.pack(
        _NULL if key is None else len(key), _NULL if value is None else len(value), len(headers)
    )
    crc = crc32c(lengths + key if key else lengths, 0, _NEVER_RELEASE_GIL)
    if value:
        crc = crc32c(value, crc, _NEVER_RELEASE_GIL)
    return crc32c(_encoded(headers), crc, _NEVER_RELEASE_GIL) if headers else crc


def _encoded(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The headers by name and, where names are equal, by value, one without a value first."""
    rows = sorted((name.encode(), content is not None, content or b"") for name, content in headers)
    return b"".join(
        [
            _HEADER_LENGTHS.pack(len(name), len(content) if has_value else _NULL) + name + content
            for name, has_value, content in rows
        ]
    )
