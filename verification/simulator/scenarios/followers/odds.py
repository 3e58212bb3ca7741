"""The random parameters of readers that read from any replica."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from partitions.values import FetchRequest
from raftlog.types import Offset
from verification.simulator.odds import Odds

LOCAL_ODDS: Final = 0.6  # only the replica of the broker that is asked, as clients with a rack ask


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerOdds:
    """The parameters of the readers of one run."""

    readers: int
    staleness_ms: tuple[int, ...]

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw bounds of staleness below and above the duration of elections."""
        return cls(
            readers=rng.choice((2, 3)),
            staleness_ms=rng.choice(((500,), (500, 1_000), (700, 3_000), (2_000,))),
        )

    def request(self, rng: random.Random, position: int, *, committed_only: bool) -> FetchRequest:
        """Return the parameters of the next read."""
        return FetchRequest(
            position=Offset(position),
            bytes_max=4096,
            wait_ms=rng.choice((0, 0, 100, 400, 2_500)),
            committed_only=committed_only,
            max_staleness_ms=rng.choice(self.staleness_ms),
            is_local=rng.random() < LOCAL_ODDS,
        )


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, FollowerOdds]:
    """Draw a cluster with three replicas, and readers that read from any replica."""
    return replace(cluster, replicas=3, faults_s=max(cluster.faults_s, 8.0)), FollowerOdds.drawn(rng)
