"""Converts values, keys and headers of records to JSON. The command line uses this module, too.

Decides: the JSON representation of bytes, by ``format``.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from raftlog.errors import InvalidRecord
from raftlog.records.tags import TAG_RECORD_HEADER
from raftlog.wire import bodies

ESCAPED_BYTES_MAX = 1 << 20
JSON_BYTES_MAX = 2 << 20  # bytes of a value that is checked to be JSON, in one compiled call
STEP_BYTES = 3 << 18  # bytes of a value that one compiled call converts; base64 needs a multiple of three
_ESCAPED = bytes(range(32)) + b'"\\'
FORMATS = ("auto", "utf8", "json", "base64")
Shown = tuple[msgspec.Raw, bodies.Encoding]
ABSENT: Shown = (msgspec.Raw(b"null"), "utf8")


ShownKey = tuple[str | None, Literal["base64"] | UnsetType]
NO_KEY: ShownKey = (None, UNSET)


def key_in_json(key: bytes | None) -> ShownKey:
    """Return a key as a string, and the encoding of the string if the key is not UTF-8."""
    if key is None:
        return NO_KEY
    try:
        return key.decode(), UNSET
    except UnicodeDecodeError:
        return base64.b64encode(key).decode(), "base64"


Headers = tuple[dict[str, str | None], list[str], list[tuple[str, str | None]] | UnsetType]


def headers_in_json(pairs: Sequence[tuple[str, bytes | None]]) -> Headers:
    """Return the headers in three parts: plain headers, tags, and other headers (repeated names, and values
    that are not UTF-8).
    """
    plain: dict[str, str | None] = {}
    tags: list[str] = []
    raw: list[tuple[str, str | None]] = []
    names = [name for name, _ in pairs]
    repeated = _repeated(names)
    for name, content in pairs:
        text = _text(content)
        if name == TAG_RECORD_HEADER and text is not None:
            tags.append(text)
        elif name in repeated or (text is None and content is not None):
            raw.append((name, None if content is None else base64.b64encode(content).decode()))
        else:
            plain[name] = text
    return plain, tags, raw or UNSET


def _repeated(names: Sequence[str]) -> frozenset[str]:
    if len(set(names)) == len(names):
        return frozenset()
    return frozenset(name for name, count in Counter(names).items() if count > 1)


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _as_base64(value: bytes, _offset: int) -> Shown:
    if len(value) <= STEP_BYTES:
        return msgspec.Raw(b'"' + base64.b64encode(value) + b'"'), "base64"
    return _joined(
        base64.b64encode(value[at : at + STEP_BYTES]) for at in range(0, len(value), STEP_BYTES)
    ), "base64"


def _as_string(text: str) -> Shown:
    if len(text) <= STEP_BYTES:
        return msgspec.Raw(msgspec.json.encode(text)), "utf8"
    return _joined(
        msgspec.json.encode(text[at : at + STEP_BYTES])[1:-1] for at in range(0, len(text), STEP_BYTES)
    ), "utf8"


def _joined(parts: Iterable[bytes]) -> msgspec.Raw:
    """Join the parts of a JSON string. The parts are made one by one, in separate calls of compiled code, so
    that other threads can run in between.
    """
    joined = bytearray(b'"')
    for part in parts:
        joined += part
    joined += b'"'
    return msgspec.Raw(joined)


def _grows(value: bytes) -> bool:
    """True for a text whose JSON form is much longer because of its escapes."""
    steps = range(0, len(value), STEP_BYTES)
    return (
        sum(len(value[at : at + STEP_BYTES].translate(None, _ESCAPED)) for at in steps) < len(value) * 7 // 8
    )


def _as_utf8(value: bytes, offset: int) -> Shown:
    if len(value) > ESCAPED_BYTES_MAX and _grows(value):
        raise _not_in("text without many escapes in JSON", offset)
    try:
        return _as_string(value.decode())
    except UnicodeDecodeError:
        raise _not_in("UTF-8", offset) from None


def _as_json(value: bytes, offset: int) -> Shown:
    if len(value) > JSON_BYTES_MAX:
        raise _not_in(f"JSON of at most {JSON_BYTES_MAX} bytes", offset)
    try:
        value.decode()  # ``format`` allows any bytes inside strings
        return msgspec.Raw(msgspec.json.format(value, indent=-1)), "json"
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        raise _not_in("JSON", offset) from None


def as_it_looks(value: bytes, _offset: int) -> Shown:
    """Return a value in its readable form: objects and arrays up to ``JSON_BYTES_MAX`` as JSON, other text as
    a string, other bytes as base64.

    Long text with many control characters is also base64: JSON needs six bytes for each of these characters.
    """
    if len(value) > ESCAPED_BYTES_MAX and _grows(value):
        return _as_base64(value, 0)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _as_base64(value, 0)
    if value[:1] in (b"{", b"[") and len(value) <= JSON_BYTES_MAX:
        try:
            return msgspec.Raw(msgspec.json.format(value, indent=-1)), "json"
        except (msgspec.DecodeError, RecursionError):
            pass
    return _as_string(text)


def _not_in(form: str, offset: int) -> InvalidRecord:
    return InvalidRecord(
        f"the record at offset {offset} is not {form}; fetch with format=auto or format=base64",
        errors=[f"/records: offset {offset} is not {form}"],
    )


SHOW: dict[str, Callable[[bytes, int], Shown]] = {
    "auto": as_it_looks,
    "utf8": _as_utf8,
    "json": _as_json,
    "base64": _as_base64,
}
