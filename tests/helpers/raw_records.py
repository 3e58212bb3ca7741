"""Records as they are encoded, with fields that say what is not so."""

from __future__ import annotations


def raw_record(offset_delta: int = 0, **said: int) -> bytes:
    """A record with key, value and a header.

    ``said`` are other numbers than the right ones in the fields ``length``, ``key``, ``value``,
    ``header_count``, ``header_name`` and ``header_value``.
    """

    def field(name: str, content: bytes) -> bytes:
        return varint(said.get(name, len(content))) + content

    header = field("header_name", b"h") + field("header_value", b"x")
    contents = field("key", b"k") + field("value", b"value") + varint(said.get("header_count", 1)) + header
    return field("length", b"\0" + varint(0) + varint(offset_delta) + contents)


def varint(number: int) -> bytes:
    """A zigzag variable-length integer of 64 bits."""
    left, encoded = (number << 1 ^ number >> 63) & (1 << 64) - 1, bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*encoded, left))
