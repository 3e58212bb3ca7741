"""The assignors that every client and every broker has, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.assignors.cooperative import CooperativeStickyAssignor
from raftlog.assignors.range_assignor import RangeAssignor
from raftlog.assignors.round_robin import RoundRobinAssignor
from raftlog.assignors.sticky import StickyAssignor
from raftlog.assignors.values import Assignor

_ALL: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
ASSIGNORS: Final[Mapping[str, Assignor]] = {each.name: each for each in _ALL}


def assignor(name: str) -> Assignor:
    """The assignor of this name. Raises ``ValueError`` that names the known ones."""
    found = ASSIGNORS.get(name)
    if found is None:
        raise ValueError(f"there is no assignor {name!r}; choose {', '.join(map(repr, ASSIGNORS))}")
    return found
