"""Which texts are tags, and which lists of them a record or a reader may have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from raftlog.wire.limits import TAG_CHARACTERS_MAX, TAG_PATTERN, TAGS_MAX

SEPARATOR: Final = ","  # in a query and in a header
_TAG: Final = re.compile(TAG_PATTERN)
_SHOWN_CHARACTERS: Final = 64
_SHAPE: Final = f"1 to {TAG_CHARACTERS_MAX} characters, without commas and control characters"


def in_order(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags in the order in which a group has them, each once."""
    return tuple(sorted(set(tags)))


def why_no_tags(tags: Sequence[object], *, may_be_empty: bool = False) -> str | None:
    """What is wrong with a list of tags, and the remedy; None if nothing is."""
    if not tags and not may_be_empty:
        return f"there is no tag; name 1 to {TAGS_MAX}, or leave tags out"
    if len(tags) > TAGS_MAX:
        return f"{len(tags)} tags are too many; name {TAGS_MAX} at most"
    for tag in tags:
        if not isinstance(tag, str) or not 0 < len(tag) <= TAG_CHARACTERS_MAX or not _TAG.fullmatch(tag):
            shown = tag[:_SHOWN_CHARACTERS] if isinstance(tag, str) else tag
            return f"{shown!r} is not a tag; a tag has {_SHAPE}"
        try:
            tag.encode()
        except UnicodeEncodeError:
            return f"{tag[:_SHOWN_CHARACTERS]!r} is not a tag; it has characters that UTF-8 does not"
    return None
