"""Defines a scenario: the parameters that are drawn for it, and the part that it adds to a run.

Decides: how scenarios combine. A seed draws a cluster, and then the parameters of its scenario, which may
change those of the cluster; a scenario may build on another scenario. Leaves to others: the list of scenarios
(``scenarios``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from verification.simulator.faults import Aim, Faults
from verification.simulator.odds import Odds
from verification.simulator.part import Part
from verification.simulator.simulated_cluster import SimulatedCluster

Own = TypeVar("Own")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Generic[Own]):
    """One scenario. ``timed`` names its faults at random times, ``counted`` what its runs count beside
    faults.
    """

    own: type[Own]
    draw: Callable[[random.Random, Odds], tuple[Odds, Own]]
    begin: Callable[[SimulatedCluster, Faults, Own], Part]
    base: Callable[[random.Random], Odds] = Odds.drawn
    aims: Mapping[str, Aim] = field(default_factory=dict)  # what happens at its worst moments
    timed: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """All kinds of faults and counts that the runs of this scenario together must reach."""
        return frozenset((*self.aims, *self.timed, *self.counted))

    def drawn(self, rng: random.Random) -> Odds:
        """Draw the parameters of a run with this scenario, and with the scenarios on which it builds."""
        cluster, own = self.draw(rng, self.base(rng))
        return cluster.having(own)

    def of(self, cluster: SimulatedCluster, faults: Faults) -> Part | None:
        """Create the scenario's part of a run; None if the run does not have the scenario."""
        own = cluster.odds.of(self.own)
        return None if own is None else self.begin(cluster, faults, own)
