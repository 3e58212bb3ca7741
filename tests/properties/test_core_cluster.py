"""Whole groups of bare cores under drawn faults: ``verification.simulator.raft_level`` has the faults."""

import pytest

from verification.simulator.raft_level.core_run import run_core
from verification.simulator.raft_level.faults import CoreFaults
from verification.simulator.raft_level.group import Group
from verification.simulator.raft_level.odds import CALM, CoreOdds
from verification.simulator.raft_level.requests import Requests


@pytest.mark.parametrize("seed", range(12))
def test_no_fault_loses_an_acknowledged_record(seed: int) -> None:
    # requirement: P5
    # requirement: L9
    assert run_core(seed).violations == ()


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1500, 10))
def test_no_fault_loses_an_acknowledged_record_in_many_more_runs(first: int) -> None:
    for seed in range(first, first + 10):
        assert run_core(seed).violations == ()


def test_equal_seeds_give_equal_runs() -> None:
    one, other = run_core(5), run_core(5, keeps_lines=True)
    assert (one.trace, one.happened, one.acknowledged) == (other.trace, other.happened, other.acknowledged)
    assert "everything is healed" in other.timeline


def test_members_come_and_go_and_snapshots_arrive() -> None:
    often = {"change membership": 0.3, "cut prefix": 0.3, "cut links": 0.02}
    group = Group(3, seed=4, odds=CoreOdds(propose=0.5, timed=often), spares=2)
    Requests(group, 4)
    CoreFaults(group, 4, None)
    group.run(400)
    assert group.checker.committed.changes
    assert group.installed


@pytest.mark.parametrize("size", [1, 3, 5])
def test_an_idle_group_sends_nothing(size: int) -> None:
    group = Group(size, seed=3, odds=CALM, settings={"election_ticks": 15})
    group.run(200)
    assert all(node.core.is_quiescent for node in group.nodes.values())
    before = group.sent
    group.run(1000)
    assert group.sent == before
    leader = group.leader()
    assert leader is not None
    group.propose(leader, 3)
    group.run(3)
    assert len(group.checker.committed) == 3
