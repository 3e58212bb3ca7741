"""Reads the lines of a file or a pipe as records, or the whole input as one record.

Decides: where a line ends (at a line feed, which is not part of the record), and how the bytes of a line
become a record: with a key separator, or as JSON. Bytes are decoded only where needed: values may be binary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader

from api.http.json_bodies import decode_json
from api.resources.json_records import record_of
from raftlog.errors import InvalidRecord, InvalidRequest, RecordTooLarge
from raftlog.wire import bodies

BLOCK_BYTES = 1 << 20
LINE_BYTES_MAX = 16 << 20  # no topic takes a larger record
Headers = tuple[tuple[str, bytes | None], ...]
Fields = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""Value, key, headers, timestamp and partition of a record: a plain tuple, since millions are created."""
Parse = Callable[[bytes], Fields | None]
"""A function that parses a line into a record; ``None`` means that the line is skipped. Raises
``InvalidRequest``.
"""


class JsonLine(bodies.NewRecord):
    """A record as a JSON object in one line: as in a JSON produce, or in the output of ``consume --format
    json``.

    A line with an ``offset`` was consumed: ``topic``, ``partition`` and ``offset`` name its source, and
    ``record_crc`` is the checksum of the record stored there.
    """

    topic: str | None = None
    offset: int | None = None
    record_crc: int | None = None


@dataclass(frozen=True, slots=True)
class Plain:
    """A format whose lines are values. If ``key`` is given, all records have this key."""

    key: bytes | None = None

    def __call__(self, line: bytes) -> Fields:
        """Parse the line as a value."""
        return line, self.key, (), None, None


@dataclass(frozen=True, slots=True)
class Keyed:
    """A format whose lines are a key, a separator and a value."""

    separator: bytes

    def __call__(self, line: bytes) -> Fields:
        """Parse the line as key and value. Raises ``InvalidRecord`` without a separator."""
        key, found, value = line.partition(self.separator)
        if not found:
            shown = self.separator.decode(errors="replace")
            raise InvalidRecord(f"the line has no key: it does not contain the separator {shown!r}")
        return value, key, (), None, None


@dataclass(frozen=True, slots=True)
class Json:
    """A format whose lines are JSON objects.

    The partition of a consumed line is ignored unless ``keeps_partitions``.
    """

    keeps_partitions: bool = False

    def __call__(self, line: bytes) -> Fields | None:
        """Parse the line as a record; blank lines are skipped. Raises ``InvalidRecord``."""
        if not line.strip():
            return None
        try:
            read = decode_json(line, JsonLine, InvalidRecord)
        except InvalidRecord as error:
            raise InvalidRecord(f"{error}{_hint(line)}", **error.details) from None
        if read.delay is not None or read.deliver_at is not None:
            raise InvalidRecord(
                "the record has a delay: send it with raftlog delayed send", errors=["/delay"]
            )
        try:
            record = record_of(read)
        except InvalidRequest as error:
            field = f"/{error.details.get('field', '')}"
            raise InvalidRecord(f"{field}: {error}", errors=[f"{field}: {error}"]) from None
        is_free = read.offset is not None and not self.keeps_partitions
        partition = None if is_free else read.partition
        return record.value, record.key, record.headers, record.timestamp_ms, partition


def _hint(line: bytes) -> str:
    """Return the remedy for a line that is JSON but not a record; empty for other lines."""
    try:
        value = decode_json(line, object, InvalidRecord)
    except InvalidRecord:
        return ""
    is_record = isinstance(value, dict) and "value" in value
    return "" if is_record else "; send lines that are values themselves with --input json-values"


def bounded(parse: Parse) -> Parse:
    """Wrap a parser so that it raises ``RecordTooLarge`` for lines that are longer than any record."""

    def parse_bounded(line: bytes) -> Fields | None:
        if len(line) > LINE_BYTES_MAX:
            raise RecordTooLarge(
                f"the line has more than {LINE_BYTES_MAX} bytes, which exceeds any max.message.bytes; send "
                f"smaller records"
            )
        return parse(line)

    return parse_bounded


def with_keys(parse: Parse) -> Parse:
    """Wrap a parser so that it raises ``InvalidRecord`` for a record without a key, which compacted topics
    refuse.
    """

    def parse_with_key(line: bytes) -> Fields | None:
        fields = parse(line)
        if fields is not None and fields[1] is None:
            raise InvalidRecord(
                "the record has no key, but the topic is compacted: send a key with every record, or set "
                "cleanup.policy of the topic to delete"
            )
        return fields

    return parse_with_key


def blocks_of_lines(source: BufferedReader) -> Iterator[list[bytes]]:
    """Yield the lines of a source in blocks, each block as soon as it is available.

    A line that is longer than any record is the last line of its block. It is yielded before its end has been
    read; the rest of the line is skipped.
    """
    rest, block = b"", source.read1(BLOCK_BYTES)
    while block:
        lines = block.split(b"\n")
        lines[0] = rest + lines[0]
        rest = lines.pop()
        if len(rest) > LINE_BYTES_MAX:
            yield [*lines, rest]
            rest, block = b"", _behind_line(source)
            continue
        if lines:
            yield lines
        block = source.read1(BLOCK_BYTES)
    if rest:
        yield [rest]


def _behind_line(source: BufferedReader) -> bytes:
    """Read beyond the end of the current line; return some bytes of the next lines, empty at the end of the
    source.
    """
    while block := source.read1(BLOCK_BYTES):
        _, found, rest = block.partition(b"\n")
        if found:
            return rest or source.read1(BLOCK_BYTES)
    return b""


def whole(source: BufferedReader) -> Iterator[list[bytes]]:
    """Yield the whole source as one line. Stops one byte after the size of the largest record."""
    yield [source.read(LINE_BYTES_MAX + 1)]
