"""Checks that all members of a group, or all workers of a queue, select records by equal tags. Pure.

Offsets are committed over skipped records, so a member with other tags would miss records.
"""

from __future__ import annotations

from raftlog.errors import Conflict
from raftlog.records.tags import HasTags, TagSelection
from raftlog.wire.tags import FIELDS


def check_same_tags(ask: HasTags, known: HasTags, who: str, remedy: str) -> None:
    """Raise ``Conflict`` if the tags of a request differ from the tags of ``known``, which
    ``who`` describes.
    """
    field = next((name for name in FIELDS if getattr(ask, name) != getattr(known, name)), None)
    if field is not None:
        raise Conflict(
            f"{field}: {who} {_words(known)}, but this request asks for {_words(ask)}; offsets are committed "
            f"over skipped records: {remedy}",
            field=field,
        )


def _words(holder: HasTags) -> str:
    selection = TagSelection.in_fields(holder)
    return "all records" if selection is None else f"records with {selection}"
