"""The checksum of a record from its JSON, as docs/record-format.md has it and without code of raftlog."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any


def canonical_bytes(record: Mapping[str, Any]) -> bytes:
    """The bytes that the checksum covers, of a record whose value is text or base64."""
    headers = [(name, _of_text(text)) for name, text in record["headers"].items()]
    headers += [(name, _of_base64(coded)) for name, coded in record.get("headers_raw", [])]
    headers += [("raftlog.tag", tag.encode()) for tag in record["tags"]]
    rows = sorted((name.encode(), content is not None, content or b"") for name, content in headers)
    key = (_of_base64 if record.get("key_encoding") == "base64" else _of_text)(record["key"])
    value = (_of_base64 if record["encoding"] == "base64" else _of_text)(record["value"])
    found = _length(key) + _length(value) + len(rows).to_bytes(4, "big") + (key or b"") + (value or b"")
    for name, has_value, content in rows:
        found += _length(name) + _length(content if has_value else None) + name + content
    return found


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit: reflected polynomial 0x82F63B78, begun with and combined with 0xFFFFFFFF."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _length(content: bytes | None) -> bytes:
    return (-1 if content is None else len(content)).to_bytes(4, "big", signed=True)


def _of_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _of_base64(coded: str | None) -> bytes | None:
    return None if coded is None else base64.b64decode(coded)
