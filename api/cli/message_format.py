r"""Formats a consumed message as its value, as a JSON object, or as a text with fields.

The fields of a text: ``%t`` time, ``%T`` topic, ``%p`` partition, ``%o`` offset, ``%k`` key, ``%v`` value,
``%h`` headers as name=value with commas, ``%s`` size of key, value and headers, ``%%`` a per cent sign. Keys
and values are written unchanged, whatever bytes they contain; a null key or value is written as empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from api.cli.output import wrong_usage
from api.cli.text import unescaped
from api.resources.json_values import ABSENT, as_it_looks, headers_in_json, key_in_json
from raftlog.records.record_checksum import record_crc

if TYPE_CHECKING:
    from raftlog.client.messages import Message
    from raftlog.records.reader import StoredRecord

Render = Callable[["Message"], bytes]

INTERNAL = "__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELD = re.compile(rb"%(.|$)", re.DOTALL)


def renderer(form: str, topics: Sequence[str] = ()) -> Render:
    """Return the function that formats messages of these topics. An invalid format is wrong usage.

    Records of internal topics are decoded; for these the format ``value`` shows the keys, too.
    """
    if any(topic.startswith(INTERNAL) for topic in topics):
        from api.cli.internal_rows import readable

        render = renderer("%k %v\\n" if form == "value" else form)
        return lambda message: render(readable(message))
    named = _NAMED.get(form)
    if named is not None:
        return named
    if "%" not in form:
        wrong_usage(rf"--format {form!r} is not a format; use value, json, or a text such as '%p %o %k %v\n'")
    template = unescaped("--format", form)
    fields: list[Render] = []

    def place(found: re.Match[bytes]) -> bytes:
        letter = found[1]
        if letter == b"%":
            return b"%%"
        if letter not in _FIELDS:
            wrong_usage(
                f"--format {form!r} has the field {found[0].decode(errors='replace')!r}; there are "
                f"{', '.join('%' + name.decode() for name in _FIELDS)} and %%"
            )
        fields.append(_FIELDS[letter])
        return b"%b"

    text = _FIELD.sub(place, template)
    return lambda message: text % tuple([field(message) for field in fields])


def _value_line(message: Message) -> bytes:
    return (message.value or b"") + b"\n"


def json_line(record: Message | StoredRecord, place: Mapping[str, object]) -> bytes:
    """Return a record as a JSON object in one line. ``place`` names the topic and partition of the record."""
    value, encoding = ABSENT if record.value is None else as_it_looks(record.value, record.offset)
    key, key_encoding = key_in_json(record.key)
    headers, tags, raw = headers_in_json(record.headers)
    shown: dict[str, object] = {
        **place,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "value": value,
        "encoding": encoding,
        "headers": headers,
        "tags": tags,
    }
    if key_encoding is not msgspec.UNSET:
        shown["key_encoding"] = key_encoding
    if raw is not msgspec.UNSET:
        shown["headers_raw"] = raw
    shown["record_crc"] = record_crc(record.key, record.value, record.headers)
    return msgspec.json.encode(shown) + b"\n"


def _json_line(message: Message) -> bytes:
    return json_line(message, {"topic": message.topic, "partition": message.partition})


def _time(message: Message) -> bytes:
    """Return the time of a message in RFC 3339 in UTC; in milliseconds if it is outside the calendar's
    range.
    """
    try:
        when = _EPOCH + timedelta(milliseconds=message.timestamp_ms)
    except OverflowError:
        return b"%d" % message.timestamp_ms
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()


def _headers(message: Message) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers)


_FIELDS: Mapping[bytes, Render] = {
    b"t": _time,
    b"T": lambda message: message.topic.encode(),
    b"p": lambda message: b"%d" % message.partition,
    b"o": lambda message: b"%d" % message.offset,
    b"k": lambda message: message.key or b"",
    b"v": lambda message: message.value or b"",
    b"h": _headers,
    b"s": lambda message: b"%d" % message.size_bytes,
}
_NAMED: Mapping[str, Render] = {"value": _value_line, "json": _json_line}
