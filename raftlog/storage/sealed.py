"""Small files with a checksum: four bytes of magic, the payload, CRC-32C of both (big endian)."""

from __future__ import annotations

import struct

from crc32c import crc32c

from raftlog.storage.filesystem import Buffer

_CHECKSUM = struct.Struct(">I")
OVERHEAD_BYTES = 8


def seal(magic: bytes, *payload: Buffer) -> bytes:
    """The bytes of a sealed file.

    ``magic`` names kind and version, so that no file is taken for another kind.
    """
    checksum = crc32c(magic)
    for piece in payload:
        checksum = crc32c(piece, checksum)
    return b"".join((magic, *payload, _CHECKSUM.pack(checksum)))  # one copy: a payload may be large


def unseal(magic: bytes, data: bytes | bytearray) -> memoryview | None:
    """The payload of a sealed file; None for bytes that ``seal`` did not create with this ``magic``."""
    if len(data) < OVERHEAD_BYTES or data[:4] != magic:
        return None
    body = memoryview(data)[:-4]
    if crc32c(body) != _CHECKSUM.unpack(data[-4:])[0]:
        return None
    return body[4:]
