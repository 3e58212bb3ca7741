"""The topics that a broker knows now, for decisions of coordinators. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class KnownTopics:
    """Partitions and ids of topics. Its owner keeps it up to date; nobody else changes it."""

    counts: Mapping[str, int]
    """Partitions by topic."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic; without a topic where its id makes no difference."""
    beginnings: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By topic id and partition: offsets below are those of a partition of this number that was removed.
    Only where there was one."""
