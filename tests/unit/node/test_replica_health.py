"""Who keeps up, in ticks of 50 ms."""

from __future__ import annotations

from raftlog.core.membership import Membership
from raftlog.core.ready import RaftStatus, Role
from raftlog.node.group.replica_health import ReplicaHealth
from raftlog.types import EntryId, Index, NodeId, Term

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = frozenset({ONE, TWO, THREE})


def status(last: int, match: int, heard_ticks_ago: int) -> RaftStatus:
    """A leader's view, in which broker 3 is always well."""
    return RaftStatus(
        role=Role.LEADER,
        term=Term(1),
        leader=ONE,
        last=EntryId(Term(1), Index(last)),
        durable_index=Index(last),
        commit_index=Index(last),
        match_index={ONE: Index(last), TWO: Index(match), THREE: Index(last)},
        heard_ticks_ago={TWO: heard_ticks_ago, THREE: 0},
        is_quiescent=False,
    )


def health() -> ReplicaHealth:
    """Of a leader whose office has just begun."""
    found = ReplicaHealth(ONE, Membership(ALL), tick_ms=50)
    found.forget()
    return found


def test_everyone_has_the_benefit_of_the_doubt_once() -> None:
    found = health()
    for tick in range(21):
        assert found.in_sync(status(9, -1, tick), None, 1000) == ALL
        found.observe(status(9, -1, tick))
    assert found.in_sync(status(9, -1, 21), None, 1000) == {ONE, THREE}
    found.forget()
    assert found.in_sync(status(9, -1, 21), None, 1000) == ALL


def test_a_replica_under_load_keeps_up_although_it_is_always_a_little_behind() -> None:
    found = health()
    for tick in range(200):
        now = status(100 * tick, 100 * tick - 300, heard_ticks_ago=1)
        found.observe(now)
        assert found.in_sync(now, None, 1000) == ALL
    assert found.in_sync(status(1000, 700, 1), 300, 1000) == {ONE, THREE}
    assert found.in_sync(status(1000, 700, 1), 301, 1000) == ALL


def test_a_silent_replica_falls_out_although_the_log_does_not_move() -> None:
    found = health()
    for tick in range(40):
        found.observe(status(9, 9, tick % 3))
        assert found.in_sync(status(9, 9, tick % 3), None, 1000) == ALL
    for tick in range(30):
        found.observe(status(9, 9, tick))
    assert found.in_sync(status(9, 9, 30), None, 1000) == {ONE, THREE}
    for _ in range(2):  # the first answer says how far it was, the second that it is up to date now
        found.observe(status(9, 9, 0))
    assert found.in_sync(status(9, 9, 0), None, 1000) == ALL


def test_a_replica_without_which_a_group_became_quiescent_lags_until_it_has_caught_up() -> None:
    found = health()
    found.observe(status(9, 9, 0), frozenset({TWO}))
    assert found.in_sync(status(9, 9, 1), None, 1000) == ALL
    found.quiesced_without(frozenset({TWO}))
    found.observe(status(9, 9, 0), frozenset({TWO}))  # all are given time when the group unquiesces
    found.observe(status(9, 9, 1), frozenset({TWO}))
    assert found.in_sync(status(9, 9, 1), None, 1000) == {ONE, THREE}
    for heard_ticks_ago in (2, 3, 0):
        found.observe(status(12, 9, heard_ticks_ago))
    assert found.in_sync(status(12, 9, 0), None, 1000) == {ONE, THREE}
    found.observe(status(12, 12, 0))
    assert found.in_sync(status(12, 12, 0), None, 1000) == ALL
