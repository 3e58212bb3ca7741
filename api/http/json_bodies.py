"""Decodes JSON as structs. An error has a JSON pointer to the invalid value. The command line uses this
module, too.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, getincrementaldecoder
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from raftlog.errors import InvalidRequest, RecordTooLarge
from raftlog.exhaustion import refuse_exhausted
from raftlog.wire.decoding import UNREADABLE, decoder_of
from raftlog.wire.limits import VALUES_MAX

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview

WHOLE_BYTES_MAX: Final = 256 << 10  # decoded in one call on the event loop: few milliseconds
TEXT_BYTES: Final = 1 << 20  # checked at a time
SEARCHED_BYTES: Final = 64 << 10  # searched by one call, during which all other threads wait
PAIR_BYTES: Final = 12  # of both halves of an escaped surrogate pair
REASON_CHARACTERS: Final = 1_000  # kept of each end of a decoder's message, which may quote a whole body
_UTF8: Final = getincrementaldecoder("utf-8")

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?:contains unknown|missing required) field `(?P<name>.*)`$", re.DOTALL)
_HALF_PAIR = re.compile(rb"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[]+)")


def decode_json(
    body: Buffer, kind: type[T], error: type[InvalidRequest] = InvalidRequest, prefix: str = ""
) -> T:
    """Decode JSON as a struct, also after a byte order mark.

    Raises ``error`` with a JSON pointer, and ``Overloaded`` for lack of memory.
    """
    try:
        _check_text(body)
        if body[: len(BOM_UTF8)] == BOM_UTF8:
            body = memoryview(body)[len(BOM_UTF8) :]
        decoded = decoder_of(kind).decode(body)
    except msgspec.ValidationError as wrong:
        pointer, what = _pointed(str(wrong))
        pointer = prefix + pointer
        raise error(
            f"{pointer or 'the body'}: {what}", errors=[f"{pointer}: {what}"], field=pointer
        ) from None
    except UNREADABLE as wrong:
        what = _reason(wrong, body)
        raise error(
            f"{prefix or 'the body'} is not JSON in UTF-8: {what}", errors=[f"{prefix}: {what}"], field=prefix
        ) from None
    except MemoryError as lack:
        refuse_exhausted(lack, "the body cannot be read")
        raise
    assert isinstance(decoded, kind)
    return decoded


def _reason(wrong: Exception, body: Buffer) -> str:
    """Return why a body is not JSON. The decoder's own message calls blank bodies and half surrogate pairs
    truncated.
    """
    if isinstance(wrong, RecursionError):
        return "nested too deeply"
    if isinstance(wrong, UnicodeError):
        return str(wrong)
    starts = range(0, len(body), SEARCHED_BYTES)
    if all(bytes(body[at : at + SEARCHED_BYTES]).isspace() for at in starts):
        return "it is empty"
    for at in starts:
        before = 1 if at else 0  # a backslash before the piece would begin another escape
        piece = bytes(body[at - before : at + SEARCHED_BYTES + PAIR_BYTES])
        half = _HALF_PAIR.search(piece, before) if b"\\u" in piece else None
        if half is not None and half.start() < before + SEARCHED_BYTES:
            return f"{half[0].decode()} is half of a surrogate pair; send whole characters"
    return str(wrong)


def _check_text(body: Buffer) -> None:
    """Raise ``UnicodeDecodeError`` for bytes that are not UTF-8: the JSON decoder does not check raw values.

    The check works in pieces: the text of a body takes up to four times the memory of its bytes.
    """
    if not isinstance(body, memoryview) and body.isascii():
        return
    view, decoder = memoryview(body), _UTF8()
    for at in range(0, len(view), TEXT_BYTES):
        decoder.decode(bytes(view[at : at + TEXT_BYTES]))
    decoder.decode(b"", final=True)


def check_values(body: bytes | bytearray, count_max: int = VALUES_MAX) -> None:
    """Raise ``RecordTooLarge`` for JSON with too many values, before they use memory and time.

    All values but the first of a list or an object follow a comma. Commas in texts also count: distinguishing
    them would take as long as decoding.
    """
    if (count := body.count(b",")) > count_max:
        raise RecordTooLarge(
            f"the body has {count} commas, but {count_max} are allowed; send several smaller requests",
            limit_values=count_max,
        )


def time_ms(text: str, name: str) -> int:
    """Parse a time: RFC 3339 with a zone, or milliseconds since 1970. Raises ``InvalidRequest``."""
    if text.isascii() and text.isdigit() and len(text) <= 15:
        return int(text)
    # In a query a plus sign means a blank unless it is percent-encoded, which is often forgotten.
    written = text.replace(" ", "+") if "T" in text else text
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or len(text) < 20:
        raise InvalidRequest(f"{name}: {text[:64]!r} is not a time such as 2026-01-01T00:00:00Z", field=name)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    milliseconds = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    if milliseconds < 0:
        raise InvalidRequest(f"{name}: {text[:64]!r} is before 1970", field=name)
    return milliseconds


def _pointed(message: str) -> tuple[str, str]:
    """Split a decoder's message into JSON pointer and reason."""
    if len(message) > 2 * REASON_CHARACTERS:
        message = f"{message[:REASON_CHARACTERS]}...{message[-REASON_CHARACTERS:]}"
    found = _PLACE.match(message)
    what, path = (found["what"], found["path"] or "") if found else (message, "")
    pointer = "".join("/" + (index or name) for index, name in _STEP.findall(path))
    field = _FIELD.match(what)
    if field is not None:
        pointer += "/" + field["name"].replace("~", "~0").replace("/", "~1")
        what = "this field does not exist" if "unknown" in what else "this field is missing"
    return pointer[:300], what[:300]
