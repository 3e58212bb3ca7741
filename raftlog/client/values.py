"""Converts keys, values, headers and times of users to the bytes and numbers of a record.

Decides: text is stored as UTF-8, bytes unchanged, and any other value as compact JSON. Raises
``InvalidRecord``, which names the field, before the record is buffered.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from raftlog.client.user_code import shown, text_of
from raftlog.errors import InvalidRecord
from raftlog.records.builder import TIMESTAMP_MAX
from raftlog.records.keys import encode_key
from raftlog.records.tags import TAG_RECORD_HEADER, listed_bytes
from raftlog.wire.tags import why_no_tags

__all__ = [
    "Headers",
    "Key",
    "Value",
    "encode_headers",
    "encode_json",
    "encode_key",
    "encode_value",
    "headers_bytes",
    "timestamp_ms",
]

Key = bytes | str | int | None
Value = object
"""Bytes and text are stored unchanged, ``None`` as no value, and all other values as JSON."""
Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER_OVERHEAD_BYTES = 10


def encode_value(value: Value) -> bytes | None:
    """The bytes of a value."""
    try:
        if value is None or type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(memoryview(value))  # also for a subclass with other ``__bytes__``
        if isinstance(value, str):
            return str.encode(value)
        return encode_json(value)
    except Exception as error:  # an object of the user may raise any exception while it is encoded
        raise InvalidRecord(f"value: {text_of(error)}", errors=[f"/value: {text_of(error)}"]) from error


def encode_json(value: object) -> bytes:
    """Encode a value as compact JSON. Raises ``ValueError`` for NaN and infinity, which names their field."""
    encoded = msgspec.json.encode(value, enc_hook=_plain)
    if b"null" in encoded:  # the encoder's result for NaN and infinity
        _refuse_non_finite(msgspec.to_builtins(value, enc_hook=_plain), "")
    return encoded


def _plain(value: object) -> object:
    """Convert a text or a number of a subclass, such as numpy's, to the plain type."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _refuse_non_finite(value: object, path: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path or 'the value'} is {value}, which JSON does not have; send None or text")
    if isinstance(value, dict):
        for name, part in value.items():
            _refuse_non_finite(part, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            _refuse_non_finite(part, f"{path}/{index}")


def encode_headers(headers: Headers | None, tags: Sequence[str]) -> tuple[tuple[str, bytes | None], ...]:
    """The headers in order, followed by one header for each tag."""
    if isinstance(tags, str) or not isinstance(tags, Collection):
        raise InvalidRecord(f"tags: give a list of tags, not {shown(tags)[:200]}", errors=["/tags"])
    pairs = [] if headers is None else _header_pairs(headers)
    if tags and (why := why_no_tags(tags, may_be_empty=True)) is not None:
        raise InvalidRecord(f"tags: {why}", errors=["/tags"])
    pairs += [(TAG_RECORD_HEADER, tag) for tag in tags]
    found: list[tuple[str, bytes | None]] = []
    for name, value in pairs:
        try:
            name = str.encode(name).decode()  # works for a member of an Enum, too
            if isinstance(value, bytes):
                value = value if type(value) is bytes else bytes(memoryview(value))
            elif value is not None:
                value = str.encode(value)
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidRecord(
                f"headers: {shown(name)}: names are text, values text, bytes or None: {error}",
                errors=["/headers"],
            ) from error
        found.append((name, value))
    return tuple(found)


def _header_pairs(headers: object) -> list[tuple[str, bytes | str | None]]:
    """Headers as pairs of name and value.

    Raises ``InvalidRecord`` unless ``headers`` is a mapping or a sequence: an iterator could be read only
    once.
    """
    if isinstance(headers, Mapping):
        return [*headers.items()]
    pairs = headers if isinstance(headers, Sequence) and not isinstance(headers, str | bytes) else None
    if pairs is None or not all(isinstance(one, tuple | list) and len(one) == 2 for one in pairs):
        raise InvalidRecord(
            f"headers: {shown(headers)[:200]} is neither a mapping nor a list of pairs, such as "
            '[("trace", "a1")]',
            errors=["/headers"],
        )
    return [*pairs]


def headers_bytes(pairs: Sequence[tuple[str, bytes | None]]) -> int:
    """Upper bound of the size of headers in a batch, in bytes."""
    plain = sum(4 * len(name) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in pairs)
    return plain + listed_bytes(pairs)


def timestamp_ms(timestamp: datetime | int) -> int:
    """Milliseconds since 1970: of a time with a zone, or an unchanged number of milliseconds."""
    if isinstance(timestamp, datetime):
        if timestamp.utcoffset() is None:
            raise InvalidRecord("timestamp: a time needs a zone, such as datetime.UTC", errors=["/timestamp"])
        since = timestamp - _EPOCH
        timestamp = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    if type(timestamp) is not int or not 0 <= timestamp <= TIMESTAMP_MAX:
        raise InvalidRecord(f"timestamp: {timestamp!r} is not a time since 1970", errors=["/timestamp"])
    return timestamp
