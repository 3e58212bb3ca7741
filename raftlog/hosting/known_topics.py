"""The topics that a broker knows now, for the decisions of coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class KnownTopics:
    """The partition counts and ids of the topics that this broker knows.

    Only the owner of the object changes it.
    """

    counts: Mapping[str, int]
    """The number of partitions by topic."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The id of each topic by its name; a topic may be missing if no decision needs its id."""
    beginnings: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The first offset by topic id and partition.

    Lower offsets belong to a removed partition that had this number before.
    """
