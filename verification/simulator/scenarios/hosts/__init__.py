"""Brokers are copied or change their addresses, a link is cut for long, and all start from copies.

Decides: which broker is copied or moved, and what its settings say. Checks that only an older copy begins
again (I43), that a copy beside its original is kept out (L15), and what a restore of all brokers promises
(I44). Leaves to others: that everything works meanwhile (``convergence``).

``part`` has copies and addresses, ``long_cut`` the link, ``restored`` the cluster on copies.
"""

from __future__ import annotations

import random
from typing import Final

from verification.simulator.odds import Odds
from verification.simulator.scenario import Scenario
from verification.simulator.scenarios import joining
from verification.simulator.scenarios.hosts.odds import CUT, OF_ADDRESSES, OF_COPIES, RESTORED, HostOdds, draw
from verification.simulator.scenarios.hosts.part import Hosts
from verification.simulator.scenarios.joining.odds import JoinOdds

CUT_ODDS: Final = 0.4


def _base(rng: random.Random) -> Odds:
    """Draw a cluster that brokers join, or, for a cut link, a cluster without joins."""
    is_cut = rng.random() < CUT_ODDS
    cluster = joining.SCENARIO.drawn(rng)
    return cluster.without(JoinOdds) if is_cut else cluster


SCENARIO: Final = Scenario(
    own=HostOdds,
    draw=draw,
    begin=Hosts,
    base=_base,
    timed=(*OF_COPIES, *OF_ADDRESSES),
    counted=(CUT, RESTORED),
)
