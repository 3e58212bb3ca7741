"""The rules for a single tag, for the tags of one record, and for a reader's selection by tags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from raftlog.records.tags import TagSelection
from raftlog.wire.limits import TAG_CHARACTERS_MAX, TAG_PATTERN, TAGS_MAX

SEPARATOR: Final = ","  # in a query and in a header
_TAG: Final = re.compile(TAG_PATTERN)
_SHOWN_CHARACTERS: Final = 64
_SHAPE: Final = f"1 to {TAG_CHARACTERS_MAX} characters, without commas and control characters"


FIELDS: Final = ("tags", "tags_all", "tags_none")
"""The names of the three lists of a selection: a record has any, all, or none of the tags in the list."""


class InvalidSelection(ValueError):
    """An invalid selection by tags; ``field`` is the name of a list."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


def checked_selection(
    tags: Sequence[str] | None,
    tags_all: Sequence[str] | None,
    tags_none: Sequence[str] | None,
    *,
    names: Sequence[str] = FIELDS,
) -> TagSelection | None:
    """Build a selection from three lists, each of which is None if it is not given.

    Raises ``InvalidSelection``. ``names`` are the names of the three lists for error messages.
    """
    lists = (tags, tags_all, tags_none)
    for name, some in zip(names, lists, strict=True):
        if some is not None and (why := why_no_tags(some)) is not None:
            raise InvalidSelection(name, why)
    given = [(name, {*some}) for name, some in zip(names, lists, strict=True) if some]
    if (count := sum(len(some) for _, some in given)) > TAGS_MAX:
        together = " and ".join(name for name, _ in given)
        raise InvalidSelection(given[0][0], f"{together} have {count} tags; the maximum is {TAGS_MAX} in all")
    for name, some in zip(names[:2], lists[:2], strict=True):
        if twice := set(some or ()) & set(tags_none or ()):
            tag = min(twice)[:_SHOWN_CHARACTERS]
            raise InvalidSelection(names[2], f"{tag!r} is in {name}, too; leave it out of one of them")
    return TagSelection.of(tags or (), tags_all or (), tags_none or ())


def why_no_tags(tags: Sequence[object], *, may_be_empty: bool = False) -> str | None:
    """Why a list is no valid list of tags, and the remedy; None for a valid list."""
    if isinstance(tags, str):
        return f"{tags[:_SHOWN_CHARACTERS]!r} is one text; send a list of tags"
    if not tags and not may_be_empty:
        return f"the list has no tag; send 1 to {TAGS_MAX} tags, or leave the list out"
    if len(tags) > TAGS_MAX:
        return f"{len(tags)} tags are too many; send {TAGS_MAX} at most"
    for tag in tags:
        if not isinstance(tag, str) or not 0 < len(tag) <= TAG_CHARACTERS_MAX or not _TAG.fullmatch(tag):
            shown = tag[:_SHOWN_CHARACTERS] if isinstance(tag, str) else tag
            return f"{shown!r} is not a tag; a tag has {_SHAPE}"
        try:
            tag.encode()
        except UnicodeEncodeError:
            return f"{tag[:_SHOWN_CHARACTERS]!r} is not a tag; it has characters that UTF-8 cannot encode"
    return None
