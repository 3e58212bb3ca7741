"""The random parameters of a compacted topic."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from verification.simulator.odds import Odds
from verification.simulator.part import Config

LATEST: Final = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedOdds:
    """The parameters of the compacted topic of one run."""

    partitions: int
    keys: int
    writers: int
    readers: int
    think_s: float
    tombstones: float  # of the records
    segment_ms: int
    delete_retention_ms: int
    dirty_ratio_min: str
    retention_bytes: int  # -1: nothing is deleted but superseded records

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw few keys, small segments, and tombstones that are removed soon."""
        return cls(
            partitions=rng.choice((1, 1, 2)),
            keys=rng.choice((2, 5, 12)),
            writers=rng.choice((1, 2)),
            readers=rng.choice((1, 2)),
            think_s=rng.choice((0.02, 0.05, 0.2)),
            tombstones=rng.choice((0.1, 0.3, 0.6)),
            segment_ms=rng.choice((300, 1_000, 60_000)),
            delete_retention_ms=rng.choice((0, 0, 300, 2_000)),
            dirty_ratio_min=rng.choice(("0.01", "0.2", "0.5")),
            retention_bytes=rng.choice((-1, -1, -1, 3_000)),
        )

    @property
    def topic_config(self) -> Config:
        """The configuration of the topic; keys have underscores for dots."""
        deletes = self.retention_bytes >= 0
        return {
            "cleanup_policy": "compact,delete" if deletes else "compact",
            "retention_bytes": self.retention_bytes,
            "retention_ms": -1,
            "segment_ms": self.segment_ms,
            "delete_retention_ms": self.delete_retention_ms,
            "min_cleanable_dirty_ratio": self.dirty_ratio_min,
        }


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, CompactedOdds]:
    """Draw a run without administrators, with a compacted topic."""
    cluster = cluster.with_few_clients(rng)
    return replace(cluster, segment_bytes=1024), CompactedOdds.drawn(rng)
