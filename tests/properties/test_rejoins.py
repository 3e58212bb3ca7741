"""Groups whose members lose their disks again and again while voters come and go, with late messages.

The checker of ``verification.simulator.raft_level`` says what a rejoin needs (I45). Runs of the level
``core`` have a heartbeat round in every step; here rounds are longer, so that a replica begins again within
one.
"""

import pytest

from verification.simulator.raft_level.faults import CoreFaults
from verification.simulator.raft_level.group import Group
from verification.simulator.raft_level.odds import CoreOdds
from verification.simulator.raft_level.requests import Requests

STEPS = 400
ODDS = CoreOdds(
    delay_steps_max=3,
    drop=0.05,
    write_delay=0.3,
    propose=0.8,
    read=0.1,
    timed={"forget": 0.05, "crash": 0.1, "change membership": 0.05, "campaign": 0.02, "replay": 0.05},
)


# requirement: F6
@pytest.mark.parametrize("seed", range(16))
def test_no_incarnation_counts_again_while_a_vote_that_it_forgot_may_decide(seed: int) -> None:
    heartbeat_ticks = 3 + seed % 8
    settings = {
        "election_ticks": 4 * heartbeat_ticks,
        "heartbeat_ticks": heartbeat_ticks,
        "quiesce_ticks": 60,
    }
    group = Group(3 + seed % 3, seed, ODDS, settings, spares=2)
    Requests(group, seed)
    faults = CoreFaults(group, seed, None)
    group.run(STEPS)
    assert faults.counts["crash"] > 0
