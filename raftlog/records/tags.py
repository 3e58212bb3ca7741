"""Tags of records, and the filter of a reader that wants some of them.

A tag is a record header with the name ``raftlog.tag``; a record has one for each of its tags. So tags are
part of the format that every client of Kafka reads. ``tag_directory`` shows them to a broker that opens no
record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

TAG_RECORD_HEADER: Final = "raftlog.tag"
"""The record header that holds one tag. A record has one such header for each of its tags."""

BETWEEN_TAGS: Final = b"\0"  # no tag has the bytes 0 and 10: they are control characters
BETWEEN_SETS: Final = b"\n"

RUN_OVERHEAD_BYTES: Final = 32  # upper bound of a run's frame and its entry in the directory, beside the tags

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class TagFilter:
    """Records with any of these tags."""

    names: frozenset[bytes]

    @classmethod
    def of(cls, tags: Iterable[str]) -> TagFilter | None:
        """The filter of these tags; None without any."""
        names = frozenset(tag.encode() for tag in tags)
        return cls(names) if names else None

    def matches(self, headers: Headers) -> bool:
        """Whether a record with these headers has one of the tags."""
        names = self.names
        return any(name == TAG_RECORD_HEADER and value in names for name, value in headers)

    def selects(self, tags: bytes) -> bool:
        """Whether a ``tag_set`` has one of the tags."""
        return any(needle in tags for needle in self._needles)

    @cached_property
    def _needles(self) -> tuple[bytes, ...]:
        return tuple(BETWEEN_TAGS + name + BETWEEN_TAGS for name in sorted(self.names))


def listed_bytes(headers: Headers) -> int:
    """Upper bound of what listing the tags of a record adds to its batch."""
    return sum(RUN_OVERHEAD_BYTES + len(value or b"") for name, value in headers if name == TAG_RECORD_HEADER)


def tag_set(headers: Headers) -> bytes | None:
    """The tags of a record as a directory has them, in order and once; None if a directory cannot have them.

    No client of this project makes such tags: null, empty, or with the bytes 0 or 10.
    """
    found = {value for name, value in headers if name == TAG_RECORD_HEADER}
    if not found:
        return b""
    names = sorted(value or b"" for value in found)
    if not names[0] or any(BETWEEN_TAGS in name or BETWEEN_SETS in name for name in names):
        return None
    return b"".join((BETWEEN_TAGS, BETWEEN_TAGS.join(names), BETWEEN_TAGS))
