"""Decodes and checks JSON records, assigns them to partitions, and builds batches.

Decides: the bytes and the partition of a JSON record. Leaves to others: the append. All errors of a request
are reported together, with JSON pointers.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from api.http.json_bodies import WHOLE_BYTES_MAX, Buffer, check_values, decode_json, time_ms
from raftlog import units
from raftlog.errors import InvalidRecord, InvalidRequest, RecordTooLarge
from raftlog.records.batch import HEADER_BYTES, Codec, batch_too_large
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.keys import encode_key, partition_for_key
from raftlog.records.tags import TAG_RECORD_HEADER, listed_bytes
from raftlog.wire import bodies, media_types
from raftlog.wire.decoding import decoder_of
from raftlog.wire.limits import RECORD_VALUES_MAX
from raftlog.wire.tags import why_no_tags

if TYPE_CHECKING:  # the command line also builds records, and must import little
    from api.http.producers import Producer

OneRecord = TypeVar("OneRecord", bound=bodies.NewRecord)

ERRORS_MAX = 20  # errors in a response, so that its size is bounded
RECORD_OVERHEAD_BYTES = 36  # upper bound of the lengths, deltas and attributes of a record
HEADER_OVERHEAD_BYTES = 10

DELAY_MS_MAX = 1 << 50
BLANKS: Final = b" \t\r\n"
BLANKS_BYTES: Final = 4096  # skipped in one call
BASE64_BYTES: Final = 1 << 20  # characters that are decoded in one call; four characters are three bytes
_ESCAPE = re.compile(rb"\\")
_NAMED = re.compile(r"/records/\d+/partition: is (\d{1,9});")


class _Counter(threading.local):
    """The number of records that may still follow in the body that this thread counts."""

    count_max = left = 0


_counter = _Counter()


class _AnyRecord(msgspec.Struct):
    """A counted record: none of its fields is decoded."""

    def __post_init__(self) -> None:
        _counter.left -= 1
        if _counter.left < 0:
            raise too_many(_counter.count_max)


class _AnyRecords(msgspec.Struct):
    records: list[_AnyRecord] = []


decoder_of(_AnyRecords)  # created before any thread decodes a body


class _Parts(msgspec.Struct, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


class _Fields(msgspec.Struct):
    headers: msgspec.Raw = msgspec.Raw(b"{}")
    headers_raw: msgspec.Raw = msgspec.Raw(b"[]")
    tags: msgspec.Raw = msgspec.Raw(b"[]")


_TEXT: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


class Due(NamedTuple):
    """The time at which a delayed record is due: a delay or a time. A negative value means that it is not
    given.
    """

    delay_ms: int = -1
    at_ms: int = -1


class Placed(NamedTuple):
    """A record and its partition (``None`` for any partition). ``due`` is set if the record is delayed."""

    record: Record
    partition: int | None
    due: Due | None = None


def decode_records(body: bytes | bytearray, media_type: str, count_max: int) -> Iterable[bodies.NewRecord]:
    """Yield the records of a JSON or NDJSON body.

    Raises ``InvalidRecord``, and ``RecordTooLarge`` for too many records. Records are counted before they are
    decoded. A body above ``WHOLE_BYTES_MAX`` is decoded record by record, so that no call of the decoder
    takes long and no two copies of all records exist.
    """
    parts: Iterable[Buffer]
    if media_type == media_types.NDJSON:
        check_values(body, RECORD_VALUES_MAX)
        parts = list(islice(_lines(body), count_max + 1))
        check_count(len(parts), count_max)
    else:
        count_records(body, count_max, InvalidRecord)
        if len(body) <= WHOLE_BYTES_MAX:
            records = decode_json(body, bodies.Produce, InvalidRecord).records
            check_count(len(records), count_max)
            return records
        raw = decode_json(body, _Parts, InvalidRecord).records
        check_count(len(raw), count_max)
        parts = map(memoryview, raw)
    return decoded(parts, bodies.NewRecord)


def _lines(body: bytes | bytearray) -> Iterator[memoryview]:
    """Yield the lines of a body that are not blank, without the blanks at their beginning."""
    view, start = memoryview(body), 0
    while start < len(body):
        if body[start] in BLANKS:  # a body may consist of blank lines only
            some = bytes(view[start : start + BLANKS_BYTES])
            start += len(some) - len(some.lstrip(BLANKS))
            continue
        end = body.find(b"\n", start)
        end = len(body) if end < 0 else end
        yield view[start:end]
        start = end + 1


def decoded(parts: Iterable[Buffer], kind: type[OneRecord]) -> Iterator[OneRecord]:
    """Yield records; each part of the body is decoded separately. Raises ``InvalidRecord``."""
    return (_decoded(part, f"/records/{number}", kind) for number, part in enumerate(parts))


def place_records(
    records: Iterable[bodies.NewRecord],
    *,
    partition_count: int,
    only: int | None,
    trace: str | None,
    named_count: int = 0,
) -> list[Placed]:
    """Convert each record to bytes, with its partition. Raises ``InvalidRecord`` with all errors.

    ``only`` is the partition of the path; ``trace`` is a W3C traceparent that is stored as a header of each
    record.
    """
    return placed_by(lambda record: place(record, partition_count, only, trace, named_count), records)


def placed_by(place_one: Callable[[OneRecord], Placed], records: Iterable[OneRecord]) -> list[Placed]:
    """Convert all records of a request with ``place_one``. Raises ``InvalidRecord`` with all errors."""
    placed: list[Placed] = []
    errors: list[str] = []
    for number, record in enumerate(records):
        try:
            placed.append(place_one(record))
        except InvalidRequest as wrong:
            errors.append(f"/records/{number}/{wrong.details.get('field', '')}: {wrong}")
            if len(errors) == ERRORS_MAX:
                break
    if errors:
        raise InvalidRecord(f"{errors[0]} ({len(errors)} wrong in all)", errors=errors)
    return placed


def unknown_partitions(error: InvalidRequest) -> list[int]:
    """Return the partitions that records name and that their topic does not have."""
    errors = error.details.get("errors")
    named = (_NAMED.match(each) for each in errors) if isinstance(errors, list) else ()
    return [int(found[1]) for found in named if found is not None]


def placed_raw(record: Record, *, partition_count: int, only: int | None) -> Placed:
    """Return the record of a raw body with its partition."""
    if only is None and record.key is not None:
        return Placed(record, partition_for_key(record.key, partition_count))
    return Placed(record, only)


def spread(placed: Sequence[Placed], partition_count: int, rng: Random) -> dict[int, list[int]]:
    """Group the indexes of the records by partition. All records that may go to any partition get one
    partition.
    """
    anywhere = rng.randrange(partition_count)
    groups: dict[int, list[int]] = {}
    for number, item in enumerate(placed):
        partition = anywhere if item.partition is None else item.partition
        groups.setdefault(partition, []).append(number)
    return groups


def build_batches(
    records: Sequence[Record], *, bytes_max: int, now_ms: int, producer: Producer | None
) -> list[bytes]:
    """Build as few batches as possible for the records, none above ``bytes_max``. Raises ``RecordTooLarge``.

    A producer with a sequence gets one batch, because the sequence belongs to a batch.
    """
    is_one = producer is not None and producer.is_sequenced
    parts = list(_parts(records, None if is_one else bytes_max))
    batches = [build_batch(part, codec=Codec.NONE, timestamp_ms=now_ms, lists_tags=True) for part in parts]
    if producer is not None:
        in_transaction = producer.transactional_id is not None
        batches = [with_producer(batch, *producer[:3], in_transaction=in_transaction) for batch in batches]
    for part, batch in zip(parts, batches, strict=True):
        if len(batch) > bytes_max:
            raise batch_too_large(len(batch), len(part), bytes_max)
    return batches


def size_of(record: Record) -> int:
    """Return an upper bound of a record's size in an uncompressed batch."""
    size_bytes = RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"")
    if not record.headers:
        return size_bytes
    for name, content in record.headers:
        size_bytes += HEADER_OVERHEAD_BYTES + 4 * len(name) + len(content or b"")
    return size_bytes + listed_bytes(record.headers)


def record_of(record: bodies.NewRecord) -> Record:
    """Convert a JSON record to a record of bytes. Raises ``InvalidRequest`` with the invalid field."""
    timestamp = record.timestamp
    if isinstance(timestamp, str):
        timestamp = time_ms(timestamp, "timestamp")
    elif timestamp is not None and not 0 <= timestamp < 1 << 62:
        raise InvalidRequest("is out of range; send milliseconds since 1970", field="timestamp")
    headers = _headers(record) if record.headers or record.headers_raw or record.tags else ()
    key = None if record.key is None else _key(record)
    return Record(_value(record), key, headers, timestamp)


def raw_record(body: bytes, key: str | None, tags: Sequence[str], headers: Mapping[str, str]) -> Record:
    """Create a record whose value is the whole body of a request. Raises ``InvalidRecord``."""
    try:
        pairs = [*((name, text.encode()) for name, text in headers.items()), *_tags(tags)]
        return Record(value=body, key=encode_key(key), headers=tuple(pairs))
    except UnicodeEncodeError:
        raise InvalidRecord("a header is not UTF-8", errors=["/headers: not UTF-8"]) from None


def with_trace(record: Record, trace: str) -> Record:
    """Return the record with the traceparent ``trace`` in its headers."""
    return replace(record, headers=(*record.headers, ("traceparent", trace.encode(errors="replace"))))


def check_count(count: int, count_max: int) -> None:
    """Check the number of records in a request: raise ``InvalidRecord`` for none, and ``RecordTooLarge`` for
    too many.
    """
    if not count:
        raise InvalidRecord("the request has no records; send at least one", errors=["/records: empty"])
    if count > count_max:
        raise too_many(count_max)


def too_many(count_max: int) -> RecordTooLarge:
    """The error for a request with too many records."""
    return RecordTooLarge(
        f"one request takes at most {count_max} records; send several requests", limit_records=count_max
    )


def count_records(body: bytes | bytearray, count_max: int, error: type[InvalidRequest]) -> None:
    """Raise ``RecordTooLarge`` if a large JSON body has too many records, or too many values in them.

    The check runs before records use memory, and before a call of the decoder takes long. Raises ``error``
    for records that are not objects.
    """
    if len(body) > WHOLE_BYTES_MAX:
        check_values(body, RECORD_VALUES_MAX)
        _counter.count_max = _counter.left = count_max
        decode_json(body, _AnyRecords, error)


def _decoded(part: Buffer, pointer: str, kind: type[OneRecord]) -> OneRecord:
    if len(part) <= WHOLE_BYTES_MAX:
        return decode_json(bytes(part), kind, InvalidRecord, pointer)
    fields = decode_json(part, _Fields, InvalidRecord, pointer)
    size = max(len(memoryview(field)) for field in (fields.headers, fields.headers_raw, fields.tags))
    if size > WHOLE_BYTES_MAX:
        what = f"headers and tags may have {WHOLE_BYTES_MAX} bytes each, but these have {size}"
        raise InvalidRecord(f"{pointer}/headers: {what}", errors=[f"{pointer}/headers: {what}"])
    return decode_json(part, kind, InvalidRecord, pointer)


def place(
    record: bodies.NewRecord, partition_count: int, only: int | None, trace: str | None, named_count: int = 0
) -> Placed:
    """Convert one record to bytes, with its partition. Raises ``InvalidRequest`` with the invalid field.

    Records with keys are spread over ``partition_count`` partitions. A record may name one of ``named_count``
    partitions, which may be more; then the leader decides whether it accepts the record.
    """
    named_count = max(named_count, partition_count)
    stored = record_of(record)
    partition = record.partition
    if partition is None:
        partition = only
        if only is None and stored.key is not None:
            partition = partition_for_key(stored.key, partition_count)
    elif not 0 <= partition < named_count or (only is not None and partition != only):
        allowed = f"0 to {named_count - 1}" if only is None else f"{only}, as in the path"
        raise InvalidRequest(f"is {partition}; send {allowed}, or omit it", field="partition")
    due = None
    if record.delay is not None or record.deliver_at is not None:
        due = due_of(record.delay, record.deliver_at)
    return Placed(stored if trace is None else with_trace(stored, trace), partition, due)


def due_of(delay: int | str | None, deliver_at: int | str | None) -> Due | None:
    """Return the time at which a record is due; None if it is not delayed.

    Raises ``InvalidRequest`` with the invalid field.
    """
    if delay is not None and deliver_at is not None:
        raise InvalidRequest("send either delay or deliver_at, not both", field="deliver_at")
    if delay is not None:
        delay_ms = units.duration_ms(delay) if isinstance(delay, str) else delay
        if delay_ms is None or not 0 <= delay_ms <= DELAY_MS_MAX:
            raise InvalidRequest(
                f"delay is {str(delay)[:64]!r}; send milliseconds or a time such as 250ms, 30m, 2h or 7d",
                field="delay",
            )
        return Due(delay_ms=delay_ms)
    if deliver_at is not None:
        at_ms = time_ms(deliver_at, "deliver_at") if isinstance(deliver_at, str) else deliver_at
        if not 0 <= at_ms <= DELAY_MS_MAX:
            raise InvalidRequest(
                "deliver_at is out of range; send milliseconds since 1970", field="deliver_at"
            )
        return Due(at_ms=at_ms)
    return None


def _value(record: bodies.NewRecord) -> bytes | None:
    raw, encoding = memoryview(record.value), record.encoding
    if bytes(raw[:5]) == b"null":
        return None
    is_text = bytes(raw[:1]) == b'"'
    if encoding == "json" or (encoding is None and not is_text):
        return msgspec.json.format(raw, indent=-1)
    if not is_text:
        raise InvalidRequest(f"must be a string with encoding {encoding}", field="value")
    content = _content(raw)
    return _from_base64(content, "value") if encoding == "base64" else content


def _content(raw: memoryview) -> bytes:
    """Return the bytes of a JSON string; a long string is not copied twice."""
    text = _TEXT.decode(raw)
    if len(raw) <= WHOLE_BYTES_MAX or _ESCAPE.search(raw) is not None:
        return text.encode()
    del text
    return bytes(raw[1:-1])


def _key(record: bodies.NewRecord) -> bytes | None:
    key = record.key
    if isinstance(key, str) and record.key_encoding == "base64":
        return _from_base64(key, "key")
    return encode_key(key)


def _headers(record: bodies.NewRecord) -> tuple[tuple[str, bytes | None], ...]:
    pairs: list[tuple[str, bytes | None]] = []
    for name, text in record.headers.items():
        if name == TAG_RECORD_HEADER:
            raise InvalidRequest(f"{name} is reserved for tags; send tags in the field tags", field="headers")
        pairs.append((name, None if text is None else text.encode()))
    for name, coded in record.headers_raw:
        pairs.append((name, None if coded is None else _from_base64(coded, "headers_raw")))
    pairs.extend(_tags(record.tags))
    return tuple(pairs)


def _tags(tags: Sequence[str]) -> list[tuple[str, bytes]]:
    if (why := why_no_tags(tags, may_be_empty=True)) is not None:
        raise InvalidRecord(f"tags: {why}", errors=[f"/tags: {why}"])
    return [(TAG_RECORD_HEADER, tag.encode()) for tag in tags]


def _from_base64(text: str | bytes, field: str) -> bytes:
    steps = range(0, len(text), BASE64_BYTES)
    try:
        parts = [base64.b64decode(text[at : at + BASE64_BYTES], validate=True) for at in steps]
        if any(4 * len(part) < 3 * BASE64_BYTES for part in parts[:-1]):
            raise ValueError("padding before the end")
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except (binascii.Error, ValueError):
        raise InvalidRequest("is not base64 (RFC 4648, with padding)", field=field) from None


def _parts(records: Sequence[Record], bytes_max: int | None) -> list[Sequence[Record]]:
    """Split records into runs that fit into a batch each. A record that is too large for a batch is a run of
    its own.
    """
    if bytes_max is None:
        return [records]
    parts: list[Sequence[Record]] = []
    start, size_bytes = 0, HEADER_BYTES
    for number, record in enumerate(records):
        record_bytes = size_of(record)
        if size_bytes + record_bytes > bytes_max and number > start:
            parts.append(records[start:number])
            start, size_bytes = number, HEADER_BYTES
        size_bytes += record_bytes
    parts.append(records[start:])
    return parts
