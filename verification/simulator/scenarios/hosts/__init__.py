"""Brokers whose disks are copied or whose addresses change, a link that is cut for long, and a restore of all
brokers.

Decides: which broker is copied or moved, and what its settings say. Checks that only a broker on an older
copy begins again (I43), that a copy which runs beside its original is kept out (L15), and the promises about
a restore of all brokers (I44). Leaves to others: that everything works meanwhile (``convergence``).

``part`` copies and moves brokers, ``long_cut`` cuts a link, ``restored`` starts the whole cluster from
copies.
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
    """Draw the run on which the scenario builds: a cluster that brokers join, or, for a cut link, without
    joins.
    """
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
