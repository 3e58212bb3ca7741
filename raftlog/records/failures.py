"""The format of records that a consumer could not handle, in a group's retry and dead-letter topics.

Decides: the names of these topics, and the size, keys and headers of their records. Leaves to others: when a
record is retried or given up (``raftlog.client.worker``), and who reads dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Self

from raftlog.errors import InvalidRecord
from raftlog.records.batch import NO_TIMESTAMP
from raftlog.records.builder import TIMESTAMP_MAX, Record

Headers = tuple[tuple[str, bytes | None], ...]
Settled = Literal["redriven", "discarded"]

ORIGIN: Final = "raftlog.origin"
ATTEMPTS: Final = "raftlog.attempts"
REDRIVES: Final = "raftlog.redrives"
REASON: Final = "raftlog.reason"
FAILED_AT: Final = "raftlog.failed_at"
KEY: Final = "raftlog.key"
NO_VALUE: Final = "raftlog.no_value"
SETTLED: Final = "raftlog.settled"
BATCH_HEADER: Final = "raftlog.batch"  # first and last offset of a batch that could not be read
MESSAGE_BYTES_MAX: Final = 16 << 20  # the largest limit that a topic may have
LIMIT: Final = "max.message.bytes"  # the setting of a topic
_REASON_CHARACTERS_MAX: Final = 1000
_HEADERS_BYTES: Final = 64 << 10  # room for the headers of a failed record
_KEY_BYTES_MAX: Final = _HEADERS_BYTES // 2  # of a record stored without its contents


def retry_topic(topic: str, group: str) -> str:
    """The topic with the records of ``topic`` that a group will retry."""
    return f"{topic}.{group}.retry"


def dead_letter_topic(topic: str, group: str) -> str:
    """The topic with the records of ``topic`` that a group has given up."""
    return f"{topic}.{group}.dlq"


def limit_for(source_bytes: int) -> int:
    """``max.message.bytes`` of a topic for failed records whose source topic has the limit
    ``source_bytes``.
    """
    return min(source_bytes + _HEADERS_BYTES, MESSAGE_BYTES_MAX)


class Origin(NamedTuple):
    """The partition and offset where a record first failed. Its text is ``topic/partition/offset``."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text ``topic/partition/offset``. Raises ``ValueError`` for other text."""
        topic, partition, offset = text.rsplit("/", 2) if text.count("/") > 1 else ("", "", "")
        if not (topic and _is_number(partition) and _is_number(offset)):
            raise ValueError(f"{text[:300]!r} is not an origin; write topic/partition/offset")
        return cls(topic, int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record as its producer sent it, and details of its failure.

    ``attempts`` counts calls of the handler since the last redrive. ``timestamp_ms`` (of the record) and
    ``failed_ms`` are milliseconds since 1970. A record from another client library may have a timestamp that
    a producer must not send: it is stored with the nearest valid timestamp.
    """

    origin: Origin
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    attempts: int
    reason: str
    failed_ms: int
    redrives: int = 0

    @property
    def id(self) -> str:
        """The id of the dead letter.

        Each redrive changes the id, so that no older tombstone settles the dead letter.
        """
        return f"{self.origin}#{self.redrives}" if self.redrives else str(self.origin)

    def redriven(self) -> FailedRecord:
        """The record as a redrive sends it to the retry topic, with 0 attempts."""
        return replace(self, attempts=0, redrives=self.redrives + 1)

    def without_contents(self) -> FailedRecord:
        """The record without value, headers and a large key, for a topic that refuses it for its size.

        The reason of the failure says that these are missing.
        """
        headers = f" and {len(self.headers)} headers" if self.headers else ""
        where = f" (its {len(self.value or b'')} bytes{headers} are at {self.origin} only)"
        return replace(
            self,
            key=self.key if len(self.key or b"") <= _KEY_BYTES_MAX else None,
            value=None,
            headers=(),
            reason=self.reason[: _REASON_CHARACTERS_MAX - len(where)] + where,
        )

    def as_retry(self) -> Record:
        """The record to send to the retry topic."""
        return Record(self.value, self.key, self.headers + self._described(), _sendable(self.timestamp_ms))

    def as_dead_letter(self) -> Record:
        """The record to send to the dead-letter topic. Its key is ``id``."""
        ours = self._described()
        if self.key is not None:
            ours += ((KEY, self.key),)
        if self.value is None:
            ours += ((NO_VALUE, b""),)
        return Record(self.value or b"", self.id.encode(), self.headers + ours, _sendable(self.timestamp_ms))

    @classmethod
    def from_retry(cls, key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int) -> Self:
        """Parse a record of the retry topic. Raises ``InvalidRecord`` for a record in another format."""
        ours, theirs = _split(headers)
        return cls._read(Record(value, key, theirs, timestamp_ms), ours)

    @classmethod
    def from_dead_letter(cls, value: bytes, headers: Headers, timestamp_ms: int) -> Self:
        """Parse a dead letter that is no tombstone.

        Raises ``InvalidRecord`` for a record in another format.
        """
        ours, theirs = _split(headers)
        sent = Record(None if NO_VALUE in ours else value, ours.get(KEY), theirs, timestamp_ms)
        return cls._read(sent, ours)

    @classmethod
    def _read(cls, sent: Record, ours: Mapping[str, bytes | None]) -> Self:
        texts = {name: (value or b"").decode(errors="replace") for name, value in ours.items() if name != KEY}
        try:
            return cls(
                origin=Origin.parse(texts[ORIGIN]),
                key=sent.key,
                value=sent.value,
                headers=sent.headers,
                timestamp_ms=NO_TIMESTAMP if sent.timestamp_ms is None else _sendable(sent.timestamp_ms),
                attempts=int(texts[ATTEMPTS]),
                reason=texts[REASON],
                failed_ms=int(texts[FAILED_AT]),
                redrives=int(texts.get(REDRIVES, 0)),
            )
        except (KeyError, ValueError) as error:
            raise InvalidRecord(f"the record is not a failed record: {error}") from None

    def _described(self) -> Headers:
        redrives = ((REDRIVES, b"%d" % self.redrives),) if self.redrives else ()
        return (
            (ORIGIN, str(self.origin).encode()),
            (ATTEMPTS, b"%d" % self.attempts),
            *redrives,
            (REASON, self.reason[:_REASON_CHARACTERS_MAX].encode(errors="replace")),
            (FAILED_AT, b"%d" % self.failed_ms),
        )


def tombstone(letter_id: str, settled: Settled) -> Record:
    """The record without a value that settles a dead letter, in the dead-letter topic."""
    return Record(None, letter_id.encode(), ((SETTLED, settled.encode()),))


def origin_of(letter_id: str) -> Origin:
    """The origin that the id of a dead letter contains. Raises ``ValueError`` for other text."""
    text, mark, redrives = letter_id.partition("#")
    if mark and not (_is_number(redrives) and not redrives.startswith("0")):
        raise ValueError(
            f"{letter_id[:300]!r} is not an id; write topic/partition/offset, optionally with #redrives"
        )
    return Origin.parse(text)


def _split(headers: Headers) -> tuple[dict[str, bytes | None], Headers]:
    """Split headers into raftlog's headers, by name, and the producer's headers.

    Raftlog's headers begin with the last ``ORIGIN``; the producer's are before it.
    """
    names = [name for name, _ in headers]
    if ORIGIN not in names:
        raise InvalidRecord(f"the record is not a failed record: it has no header {ORIGIN}")
    begin = len(names) - 1 - names[::-1].index(ORIGIN)
    return dict(headers[begin:]), headers[:begin]


def _sendable(timestamp_ms: int) -> int:
    """The nearest timestamp that a producer may send, in milliseconds."""
    return min(max(timestamp_ms, NO_TIMESTAMP), TIMESTAMP_MAX)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
