"""Whole groups under drawn faults: see ``tests/helpers/raft_cluster.py`` for the faults and the judge."""

import pytest

from tests.helpers.raft_cluster import Cluster
from tests.helpers.raft_odds import CALM

SIZES = [3, 3, 5, 4, 5, 3, 1, 3, 5, 2]


def trouble_then_peace(seed: int) -> Cluster:
    """Many faults, then none: afterwards the group must commit again, agree, and fall asleep."""
    cluster = Cluster(SIZES[seed % len(SIZES)], seed, spares=2)
    for _ in range(12):
        cluster.run(40)
        cluster.judge.judge_logs()
    before = len(cluster.committed)
    cluster.heal()
    for _ in range(100):
        cluster.step()
        leader = cluster.leader()
        if leader is not None and len(cluster.committed) == before:
            cluster.propose(leader, 1)
    assert len(cluster.committed) > before, "the group does not commit again"
    cluster.run(30)
    cluster.retire()
    cluster.run(100)
    leader = cluster.leader()
    assert leader is not None
    cluster.propose(leader, 1)  # Cuts the tails that a leader without news would leave where they are.
    cluster.run(300)
    cluster.judge.judge_logs()
    assert leader is cluster.leader()
    assert not leader.core.membership.is_joint
    for member in leader.core.membership.members:
        node = cluster.nodes[member]
        assert node.log == leader.log == node.disk.log
        assert node.core.commit_index == leader.core.last.index
        assert node.core.is_asleep
    assert [item for item in cluster.wire if cluster.nodes[item[3]].is_up] == []
    return cluster


@pytest.mark.parametrize("seed", range(30))
def test_no_fault_loses_an_acknowledged_record(seed: int) -> None:
    # requirement: P5
    # requirement: L9
    trouble_then_peace(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_no_fault_loses_an_acknowledged_record_in_many_more_lives(seed: int) -> None:
    trouble_then_peace(seed)


def test_equal_seeds_give_equal_lives() -> None:
    one, other = trouble_then_peace(5), trouble_then_peace(5)
    assert (one.sent, one.committed, one.judge.leaders) == (other.sent, other.committed, other.judge.leaders)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_an_idle_group_sends_nothing(size: int) -> None:
    cluster = Cluster(size, seed=3, odds=CALM, settings={})
    cluster.run(200)
    assert all(node.core.is_asleep for node in cluster.nodes.values())
    before = cluster.sent
    cluster.run(1000)
    assert cluster.sent == before
    leader = cluster.leader()
    assert leader is not None
    cluster.propose(leader, 3)
    cluster.run(3)
    assert len(cluster.committed) == 3
