"""Tags of records, and the selection of records by tags.

A tag is a record header with the name ``raftlog.tag``; a record has one such header for each of its tags. So
tags are part of the format that every Kafka client reads. ``tag_directory`` shows the tags to a broker
without decoding records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol, TypedDict

TAG_RECORD_HEADER: Final = "raftlog.tag"
"""The name of the record header that holds one tag. A record has one such header for each of its tags."""

BETWEEN_TAGS: Final = b"\0"  # no tag has the bytes 0 and 10: they are control characters
BETWEEN_SETS: Final = b"\n"
BETWEEN_SETS_OF_RUN: Final = BETWEEN_TAGS + BETWEEN_TAGS  # no tag is empty

RUN_OVERHEAD_BYTES: Final = 32  # upper bound of a run's frame and directory entry, without the tags

Headers = Sequence[tuple[str, bytes | None]]


class HasTags(Protocol):
    """The interface of a request, a member or a body that has the three lists of a selection by tags."""

    @property
    def tags(self) -> Sequence[str]:
        """Tags of which a selected record must have at least one."""

    @property
    def tags_all(self) -> Sequence[str]:
        """Tags that a selected record must all have."""

    @property
    def tags_none(self) -> Sequence[str]:
        """Tags that a selected record must not have."""


class TagFields(TypedDict, total=False):
    """The non-empty lists of a selection, with the names that the fields of requests and members have."""

    tags: tuple[str, ...]
    tags_all: tuple[str, ...]
    tags_none: tuple[str, ...]


@dataclass(frozen=True)
class TagSelection:
    """A selection of records: those with any tag of a list, all tags of another, and no tag of a third.

    An empty list sets no condition. Each list is sorted and without repetitions, so that equal selections are
    equal values.
    """

    any: tuple[str, ...] = ()
    all: tuple[str, ...] = ()
    none: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, tags: Iterable[str] = (), tags_all: Iterable[str] = (), tags_none: Iterable[str] = ()
    ) -> TagSelection | None:
        """The selection for three lists of tags; None, which selects all records, if all three lists are
        empty.
        """
        lists = [tuple(sorted(set(names))) for names in (tags, tags_all, tags_none)]
        return cls(*lists) if any(lists) else None

    @classmethod
    def in_fields(cls, holder: HasTags) -> TagSelection | None:
        """The selection in a request, a member or a body; None if all three lists are empty."""
        if not (holder.tags or holder.tags_all or holder.tags_none):
            return None  # the usual case
        return cls.of(holder.tags, holder.tags_all, holder.tags_none)

    def __str__(self) -> str:
        parts = (("any of", self.any), ("all of", self.all), ("none of", self.none))
        return " and ".join(f"{words} {', '.join(names)}" for words, names in parts if names)

    def matches(self, headers: Headers) -> bool:
        """Whether a record with these headers is selected."""
        return self._fits({value for name, value in headers if name == TAG_RECORD_HEADER})

    def selects(self, tags: bytes) -> bool:
        """Whether a run may contain a selected record: one of the sets of tags in ``tags`` matches."""
        sets = tags.split(BETWEEN_SETS_OF_RUN)
        return any(self._fits({*each.split(BETWEEN_TAGS)}) for each in sets)

    def selected_of(self, runs: Sequence[bytes]) -> Set[int]:
        """The indexes of the selected runs; each run is given by its encoded sets of tags."""
        places = {*range(len(runs))}
        if self.any:
            without: Iterable[int] = places
            for needle in self._needles:
                without = [at for at in without if needle not in runs[at]]
            places = places.difference(without)
        if self.all or self.none:
            places = {at for at in places if self.selects(runs[at])}
        return places

    @cached_property
    def without_none(self) -> TagSelection:
        """The selection without the condition ``none``, for a set that may hold the tags of
        several records.
        """
        return replace(self, none=())

    def _fits(self, names: Set[bytes | None]) -> bool:
        some, every, no = self._names
        return (not some or not some.isdisjoint(names)) and every <= names and no.isdisjoint(names)

    @cached_property
    def _names(self) -> tuple[frozenset[bytes | None], ...]:
        return tuple(frozenset(tag.encode() for tag in names) for names in (self.any, self.all, self.none))

    @cached_property
    def _needles(self) -> tuple[bytes, ...]:
        return tuple(BETWEEN_TAGS + tag.encode() + BETWEEN_TAGS for tag in self.any)


def tag_fields(selection: TagSelection | None) -> TagFields:
    """The fields of a request for this selection, without empty lists."""
    fields = TagFields()
    if selection is not None:
        if selection.any:
            fields["tags"] = selection.any
        if selection.all:
            fields["tags_all"] = selection.all
        if selection.none:
            fields["tags_none"] = selection.none
    return fields


def listed_bytes(headers: Headers) -> int:
    """An upper bound of the number of bytes that the tags of a record add to its batch's directory."""
    return sum(RUN_OVERHEAD_BYTES + len(value or b"") for name, value in headers if name == TAG_RECORD_HEADER)


def tag_set(headers: Headers) -> bytes | None:
    """The tags of a record as a directory stores them, sorted; None if a directory cannot store them.

    A directory cannot store null, empty tags, or tags with the bytes 0 or 10; no client of this project
    creates them.
    """
    found = {value for name, value in headers if name == TAG_RECORD_HEADER}
    if not found:
        return b""
    names = sorted(value or b"" for value in found)
    if not names[0] or any(BETWEEN_TAGS in name or BETWEEN_SETS in name for name in names):
        return None
    return b"".join((BETWEEN_TAGS, BETWEEN_TAGS.join(names), BETWEEN_TAGS))
