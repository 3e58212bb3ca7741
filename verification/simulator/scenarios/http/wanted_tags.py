"""The rule by which checks decide whether a record matches tags; it shares no code with the brokers' rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.records.tags import TagSelection
from raftlog.wire.tags import FIELDS

_TAG: Final = "raftlog.tag"


def selection_in(query: Mapping[str, str]) -> TagSelection | None:
    """The tags by which a request selects records; None if it requests all records."""
    return TagSelection.of(*([tag for tag in query.get(name, "").split(",") if tag] for name in FIELDS))


def is_wanted(headers: tuple[tuple[str, bytes | None], ...], wanted: TagSelection | None) -> bool:
    """Return whether a record's tags match: at least one of ``any``, each of ``all``, and none of
    ``none``.
    """
    if wanted is None:
        return True
    tags = {value.decode() for name, value in headers if name == _TAG and value}
    has_any = not wanted.any or bool(tags.intersection(wanted.any))
    return has_any and tags.issuperset(wanted.all) and tags.isdisjoint(wanted.none)
