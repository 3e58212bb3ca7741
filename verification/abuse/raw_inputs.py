"""Defines requests whose extreme input no schema describes: batches, lines, query strings and headers.

There is a table of bodies for each media type, a table of query strings and a table of headers. Each of their
rows gives a request for every operation of the OpenAPI document. Equal documents give equal requests.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import cramjam

from raftlog.records.batch import BatchHeader, Codec, checksum, pack_header, parse_header
from raftlog.records.builder import Record, build_batch
from raftlog.wire import headers, media_types
from verification.abuse.extremes import Contract, Extreme

MANY: Final = 1_000_000  # lines
DEEP: Final = 100_000  # levels of nesting
LONG: Final = 3_000_000  # bytes of a line or a value
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_HEADER_BYTES: Final = 61
_BITS: Final = dict(
    zip(BatchHeader._fields, (64, 32, 32, 8, 32, 16, 32, 64, 64, 64, 16, 32, 32), strict=True)
)
_GOOD: Final = b'{"value":1}'

Named = tuple[str, bytes]


def tabled_bodies(contract: Contract) -> Iterator[Extreme]:
    """Yield a request for each operation and each body in the table of a media type that it accepts."""
    for good, media_type in contract.bodies():
        sent = {**good.headers, "Content-Type": media_type}
        for name, body in BODIES.get(media_type, lambda: iter(()))():
            yield Extreme(f"{good.name} {media_type} {name}", good.method, good.path, sent, body)


def tabled_heads(contract: Contract) -> Iterator[Extreme]:
    """Yield a request for each operation and each query string and header of the tables."""
    for good in contract.valid():
        separator = "&" if "?" in good.path else "?"
        for query in QUERIES:
            path = f"{good.path}{separator}{query}"
            yield Extreme(f"{good.name} ?{query[:40]}", good.method, path, good.headers, good.body)
        for name, values in HEADERS.items():
            for value in values:
                told = f"{good.name} {name}: {ascii(value)[:40]}"
                yield Extreme(told, good.method, good.path, {**good.headers, name: value}, good.body)
        for name in (*HEADERS, *contract.header_names):  # sent twice: names of headers are case-insensitive
            twice = {**good.headers, name.lower(): "1", name.upper(): "2"}
            yield Extreme(f"{good.name} {name} twice", good.method, good.path, twice, good.body)


def batches() -> Iterator[Named]:
    """Yield binary batches with extreme header fields, wrong lengths and sizes, or damaged records."""
    whole = build_batch([Record(b"v" * 100, b"k")] * 3, codec=Codec.NONE, timestamp_ms=1)
    header = parse_header(whole)
    for field, bits in _BITS.items():
        for number in _ends(getattr(header, field), bits, is_signed=field != "crc"):
            yield f"{field} = {number}", _headed(header._replace(**{field: number}), whole, field)
    for codec in Codec:
        packed = build_batch([Record(b"v" * 1_000)] * 3, codec=codec, timestamp_ms=1)
        for number in range(8):  # a codec that does not match the body, or none
            attributes = parse_header(packed).attributes & ~7 | number
            yield f"{codec.name} as {number}", _rebodied(packed, packed[_HEADER_BYTES:], attributes)
        for name, body in _lies(codec):
            yield f"{codec.name} {name}", _rebodied(packed, body)
    for name, body in _RECORDS.items():
        yield name, _rebodied(whole, body)
    for cut in (1, 12, 60, 61, 62, len(whole) - 1):
        yield f"first {cut} bytes", whole[:cut]
        yield f"another and first {cut} bytes", whole + whole[:cut]
    yield "bytes behind", whole + b"\x00"
    yield "100,000 of them", whole * 10_000


def lines() -> Iterator[Named]:
    """Yield NDJSON bodies: unusual line ends, many lines, byte order marks, deep or long values, and invalid
    JSON.
    """
    yield from _LINES.items()
    yield "a million empty lines", b"\n" * MANY
    yield "a million blank lines", b" \r\n" * (MANY // 3)
    yield "a million records", b"{}\n" * MANY
    yield "10,001 records", _GOOD + (b"\n" + _GOOD) * 10_000
    yield "one huge line", b'{"value":"' + b"x" * LONG + b'"}'
    yield "one huge line without an end", b'{"value":"' + b"x" * LONG
    yield "a huge number", b'{"value":1' + b"0" * LONG + b"}"
    yield "nested lists", b'{"value":' + b"[" * DEEP + b"]" * DEEP + b"}"
    yield "nested maps without an end", b'{"value":' + b'{"a":' * DEEP
    yield "a million headers", b'{"headers":{' + b",".join(b'"%d":""' % n for n in range(MANY // 10)) + b"}}"


def raw_values() -> Iterator[Named]:
    """Yield bodies for the raw media type, where a body is one value: empty, zeros, and longer than
    a batch.
    """
    yield "nothing", b""
    yield "zeros", bytes(1_000)
    yield "more than a batch takes", bytes(LONG)


BODIES: Final[Mapping[str, Callable[[], Iterator[Named]]]] = {
    media_types.BATCH: batches,
    media_types.NDJSON: lines,
    media_types.OCTET_STREAM: raw_values,
}
QUERIES: Final = (
    *("", "&", "=", "&&&&", "=&=", "%", "%zz", "%ff", "%00", "%C3%28", "a=%E2%82", "\xff", "?", "#", ";"),
    *("no_such_parameter=1", "limit", "limit=", "limit=1&limit=2", "LIMIT=1", "limit=1;offset=2", "[]=1"),
    *("limit=+1", "limit=%201", "limit=1%0a", "limit=%D9%A1", "offset=1e3", "offset=0x10", "offset=-0"),
    *("&".join(f"a{number}=1" for number in range(900)), "a=" + "x" * 8_000, "&" * 8_000),
)
_NUMBERS: Final = ("", "-1", "0", "1.5", "9" * 400, "0x10", "1e999", "\xd9\xa1", " 1 ", "1,2")
_TEXTS: Final = ("", "\xff", "\xc3\xa9", "\x01", "a\tb", ",", '"', "x" * 7_000)
HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((headers.PRODUCER_ID, headers.PRODUCER_EPOCH, headers.PRODUCER_SEQUENCE), _NUMBERS),
    **dict.fromkeys((headers.TRANSACTION, headers.IDEMPOTENCY_KEY, headers.KEY, headers.TAGS), _TEXTS),
    f"{headers.HEADER_PREFIX}x": _TEXTS,
    headers.HEADER_PREFIX: _TEXTS,
    "Accept": ("", "*/*;q=2", "text/*", "\xff", media_types.EVENT_STREAM, media_types.BATCH, ",," * 3_000),
    "Accept-Encoding": ("", "gzip;q=\xff", "br", "*;q=0", "identity;q=0"),
    "Content-Type": ("", "\xff", "application/json;charset=utf-7", "application/json" * 400, "a/b/c"),
    "Content-Encoding": ("", "gzip", "deflate", "br", "gzip, gzip", "\xff"),
    "Transfer-Encoding": ("identity", "gzip", "chunked, chunked"),
    "Expect": ("100-continue", "200-ok"),
    "Upgrade": ("websocket", "h2c", ""),
    "Host": ("", "[", "[::1", "localhost:99999999", "a" * 300, "\xff", "localhost@evil", "localhost,evil"),
    "Origin": ("", "null", "http://", "\xff"),
    "If-Match": (*_NUMBERS, "*", 'W/"1"', '"' * 1_000),
    "Last-Event-ID": (*_NUMBERS, "0:" * 1_000),
    "Range": ("bytes=0-", "bytes=-1", "x"),
    "Cookie": _TEXTS,
    "traceparent": (*_TEXTS, "00-" + "0" * 32 + "-" + "0" * 16 + "-00"),
    "X-Forwarded-For": ("127.0.0.1", "\xff"),
}
_LINES: Final = {
    "nothing": b"",
    "an empty line": b"\n",
    "a record": _GOOD,
    "a mark at the start": b"\xef\xbb\xbf" + _GOOD,
    "only a mark": b"\xef\xbb\xbf",
    "a mark at each line": (b"\xef\xbb\xbf" + _GOOD + b"\n") * 3,
    "UTF-16": '{"value":1}\n'.encode("utf-16"),
    "CR LF": (_GOOD + b"\r\n") * 3,
    "CR alone": (_GOOD + b"\r") * 3,
    "other ends of lines": _GOOD + "\u2028".encode() + _GOOD + b"\x0b" + _GOOD + b"\x0c" + _GOOD,
    "half a line": _GOOD + b'\n{"val',
    "half a character": _GOOD + b'\n{"value":"\xe2\x82',
    "two on a line": _GOOD + _GOOD,
    "a comma behind": _GOOD + b",\n" + _GOOD,
    "a list": b"[" + _GOOD + b"]",
    "the body of JSON": b'{"records":[' + _GOOD + b"]}",
    "null": b"null\n" * 3,
    "numbers": b"1\n-0\n1e999\nNaN\n",
    "zeros": bytes(100),
    "not UTF-8": b'{"value":"\xff\xfe"}',
    "half a pair": b'{"value":"\\ud800"}',
    "a name twice": b'{"value":1,"value":2}',
    "a field that does not exist": b'{"valeu":1}',
    "a control character": b'{"value":"\x01"}',
}
_RECORDS: Final = {
    "no records": b"",
    "a record of 2^63 bytes": b"\xfe" + b"\xff" * 8 + b"\x01" + bytes(20),
    "a length without an end": b"\xff" * 200,
    "a negative length": b"\x01" + bytes(20),
    "a key of 2^31 bytes": b"\x28\x00\x00\x00\xfe\xff\xff\xff\x0f" + bytes(20),
    "2^31 headers": b"\x28\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f" + bytes(20),
    "offsets that fall": b"\x0c\x00\x00\x0a\x01\x01\x00" + b"\x0c\x00\x00\x00\x01\x01\x00" * 2,
    "times beyond 64 bits": b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00",
}


def _ends(good: int, bits: int, *, is_signed: bool) -> list[int]:
    """Return the least and greatest numbers of a field with this many bits, and the numbers next to
    ``good``.
    """
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    found = {low, low + 1, -1, 0, 1, good - 1, good + 1, high - 1, high, 1 << bits // 2}
    return sorted(number for number in found if low <= number <= high and number != good)


def _headed(header: BatchHeader, whole: bytes, field: str) -> bytes:
    """Return the batch with a changed header field. Its checksum is right, unless ``field`` is the
    checksum.
    """
    data = bytearray(pack_header(*header) + whole[_HEADER_BYTES:])
    if field != "crc":
        _CRC.pack_into(data, _CRC_AT, checksum(data))
    return bytes(data)


def _rebodied(whole: bytes, body: bytes, attributes: int | None = None) -> bytes:
    """Return the batch with another body and a header whose length and checksum fit the body."""
    header = parse_header(whole)
    length = header.batch_length - (len(whole) - _HEADER_BYTES) + len(body)
    kept = header.attributes if attributes is None else attributes
    return _headed(header._replace(batch_length=length, attributes=kept), whole[:_HEADER_BYTES] + body, "")


def _lies(codec: Codec) -> Iterator[Named]:
    """Yield compressed bodies that state a wrong size, or that decompress to too many bytes."""
    small, large = b"v" * 1_000, bytes(64 << 20)
    match codec:
        case Codec.GZIP:
            packed = zlib.compress(small, wbits=31)
            for size in (0, 1 << 31, (1 << 32) - 1):
                yield f"claims {size}", packed[:-4] + struct.pack("<I", size)
            yield "64 MiB", bytes(cramjam.gzip.compress(large, level=9))
            yield "a thousand members", zlib.compress(b"", wbits=31) * 1_000
        case Codec.SNAPPY:
            packed = bytes(cramjam.snappy.compress_raw(small))[2:]
            for claim in (b"\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 20):
                yield f"claims {claim.hex()}", claim + packed
            yield (
                "blocks of 2^31",
                b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"\x7f\xff\xff\xff" + packed,
            )
        case Codec.LZ4:
            for size in (0, 1 << 31, (1 << 64) - 1):
                yield (
                    f"claims {size}",
                    b"\x04\x22\x4d\x18\x68\x70" + struct.pack("<Q", size) + b"\x00" + small,
                )
            yield "64 MiB", bytes(cramjam.lz4.compress(large, level=9))
        case Codec.ZSTD:
            for size in (0, 1 << 31, (1 << 64) - 1):
                yield f"claims {size}", b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", size) + b"\x01\x00\x00"
            yield "a window of 2 TiB", b"\x28\xb5\x2f\xfd\x00\xf8" + b"\x01\x00\x00"
            yield "64 MiB", bytes(cramjam.zstd.compress(large, level=19))
