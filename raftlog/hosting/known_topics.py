"""The topics that a broker knows now, for the decisions of coordinators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class KnownTopics:
    """Partitions and ids of topics. Only its owner changes it."""

    counts: Mapping[str, int]
    """The number of partitions by topic."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic ids by topic; topics whose id makes no difference are missing."""
    beginnings: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """First offsets by topic id and partition; lower offsets are of a removed partition of equal number."""
