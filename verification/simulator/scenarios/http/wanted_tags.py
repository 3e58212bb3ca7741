"""The rule by which the checks match records with tags, independent of the product's rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.records.tags import TagSelection
from raftlog.wire.tags import FIELDS

_TAG: Final = "raftlog.tag"


def selection_in(query: Mapping[str, str]) -> TagSelection | None:
    """The tags that a request names; None for all records."""
    return TagSelection.of(*([tag for tag in query.get(name, "").split(",") if tag] for name in FIELDS))


def is_wanted(headers: tuple[tuple[str, bytes | None], ...], wanted: TagSelection | None) -> bool:
    """Whether a record with these headers has any of some tags, all of some, and none of some."""
    if wanted is None:
        return True
    tags = {value.decode() for name, value in headers if name == _TAG and value}
    has_any = not wanted.any or bool(tags.intersection(wanted.any))
    return has_any and tags.issuperset(wanted.all) and tags.isdisjoint(wanted.none)
