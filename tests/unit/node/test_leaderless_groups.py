"""Peers that are lost or silent: when that is so, and the order in which groups hear of it."""

from __future__ import annotations

from typing import cast

from raftlog.core.membership import Membership
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.leaderless_groups import ELECTIONS_PER_TICK, LeaderlessGroups
from raftlog.node.peer_watch import PACE_TICKS, PeerWatch
from raftlog.types import GroupId, NodeId
from tests.helpers.raft_member import ME, THREE, TWO, members

LOST, REACHABLE = "lost", "reachable"


class FakeGroup:
    """What groups are told; ``unreachable`` follows from it."""

    def __init__(self, leader: NodeId) -> None:
        self.leader: NodeId | None = leader
        self.membership: Membership = members(1, 2, 3)
        self.unreachable: set[NodeId] = set()
        self.told: list[tuple[str, NodeId]] = []

    @property
    def is_leader(self) -> bool:
        return self.leader == ME

    def peer_unreachable(self, peer: NodeId) -> None:
        self.unreachable.add(peer)
        self.told.append((LOST, peer))

    def peer_reachable(self, peer: NodeId) -> None:
        self.unreachable.discard(peer)
        self.told.append((REACHABLE, peer))


class Host:
    """Groups led by one node, of which so many must wait for their turn."""

    def __init__(self, leader: NodeId, count: int = ELECTIONS_PER_TICK + 1) -> None:
        self.groups = {GroupId(number): FakeGroup(leader) for number in range(1, count + 1)}
        self.last = self.groups[GroupId(count)]
        self.reachable = {ME, TWO, THREE}
        self.leaderless = LeaderlessGroups(
            cast("dict[GroupId, RaftGroup[object]]", self.groups), self.reachable.__contains__
        )

    def lose(self, peer: NodeId) -> None:
        self.reachable.discard(peer)
        self.leaderless.peer_lost(peer, ())

    def hear(self, peer: NodeId) -> None:
        self.reachable.add(peer)
        self.leaderless.peer_reachable(peer, ())

    def tick(self) -> None:
        while self.leaderless:
            self.leaderless.elect_some()


def test_some_groups_are_told_at_once_and_the_others_later() -> None:
    for leader in (ME, TWO):
        host = Host(leader)
        host.lose(TWO)
        assert host.last.told == []
        host.tick()
        assert all(group.told == [(LOST, TWO)] for group in host.groups.values())


def test_a_leader_is_told_of_a_loss_that_is_over() -> None:
    """The peer may be another incarnation, which waits for its leader."""
    host = Host(ME)
    host.lose(TWO)
    host.hear(TWO)
    host.tick()
    assert all(group.told == [(LOST, TWO), (REACHABLE, TWO)] for group in host.groups.values())


def test_a_peer_that_is_lost_again_before_its_return_was_told_is_unreachable() -> None:
    host = Host(ME)
    host.lose(TWO)
    host.tick()
    host.hear(TWO)
    host.lose(TWO)
    host.tick()
    assert all(group.unreachable == {TWO} for group in host.groups.values())


def test_a_group_that_has_another_leader_when_its_turn_comes_learns_who_is_unreachable() -> None:
    host = Host(TWO)
    host.lose(TWO)
    host.last.leader = THREE
    host.tick()
    assert host.last.unreachable == {TWO}


def test_a_follower_of_a_peer_that_has_returned_is_not_told_of_its_loss() -> None:
    host = Host(ME)
    host.lose(TWO)
    host.last.leader = TWO
    host.hear(TWO)
    host.tick()
    assert (LOST, TWO) not in host.last.told


def test_a_former_leader_that_has_returned_is_no_longer_unreachable() -> None:
    host = Host(TWO)
    host.lose(TWO)
    host.hear(TWO)
    host.tick()
    assert not any(group.unreachable for group in host.groups.values())
    assert (LOST, TWO) in host.last.told


def test_a_group_that_opens_learns_who_is_unreachable() -> None:
    host = Host(ME)
    host.lose(THREE)
    group = FakeGroup(TWO)
    host.leaderless.opened(cast("RaftGroup[object]", group))
    assert group.unreachable == {THREE}


def test_former_members_that_return_are_no_longer_unreachable() -> None:
    host = Host(ME)
    host.lose(THREE)
    host.tick()
    for group in host.groups.values():
        group.membership = members(1, 2)
    host.hear(THREE)
    host.tick()
    assert not any(group.unreachable for group in host.groups.values())


PEER = NodeId(2)
SILENCE_TICKS, TICK_MS = 9, 50
USUAL_TICKS = 2


class Watched:
    """A watch whose peer speaks when the test says so."""

    def __init__(self) -> None:
        self._quiet_ticks = 0
        self.watch = PeerWatch(SILENCE_TICKS, TICK_MS, lambda peer: self._quiet_ticks * TICK_MS / 1000)
        self.watch.connected(PEER)
        self.speak()

    def speak(self) -> None:
        self._quiet_ticks = 0
        self.watch.heard(PEER)

    def pass_ticks(self, count: int) -> None:
        for _ in range(count):
            self._quiet_ticks += 1
            self.watch.tick()

    def speak_every(self, ticks: int, *, for_ticks: int) -> None:
        """Let the peer speak every so many ticks; it counts as silent in none of them."""
        for _ in range(for_ticks // ticks):
            for _ in range(ticks):
                self.pass_ticks(1)
                assert not self.watch.is_silent(PEER)
            self.speak()

    def silent_after(self) -> int:
        """The ticks until it counts as silent."""
        for ticks in range(1, 1000):
            self.pass_ticks(1)
            if self.watch.is_silent(PEER):
                return ticks
        raise AssertionError("never")


def test_a_peer_is_silent_after_the_shortest_election_timeout() -> None:
    watched = Watched()
    watched.speak_every(USUAL_TICKS, for_ticks=2 * PACE_TICKS)
    assert watched.silent_after() == SILENCE_TICKS + 1


def test_a_peer_whose_frames_come_late_is_given_three_times_as_long_as_the_latest_took() -> None:
    watched = Watched()
    watched.speak_every(8, for_ticks=8)
    assert watched.silent_after() == 3 * 8 + 1


def test_a_peer_that_becomes_slower_and_slower_is_never_silent_up_to_a_bound() -> None:
    watched = Watched()
    gap = USUAL_TICKS
    while gap < 5 * SILENCE_TICKS:
        watched.speak_every(gap, for_ticks=3 * gap)
        gap = gap * 3 // 2 + 1
    assert watched.silent_after() == 6 * SILENCE_TICKS + 1


def test_a_peer_that_was_late_long_ago_has_no_more_time_than_others() -> None:
    watched = Watched()
    watched.speak_every(8, for_ticks=8)
    watched.speak_every(USUAL_TICKS, for_ticks=2 * PACE_TICKS)
    assert watched.silent_after() == SILENCE_TICKS + 1


def test_a_peer_that_was_late_lately_has_more_time_whenever_it_was() -> None:
    for later in range(0, PACE_TICKS, USUAL_TICKS):
        watched = Watched()
        watched.speak_every(8, for_ticks=8)
        watched.speak_every(USUAL_TICKS, for_ticks=later)
        assert watched.silent_after() in (3 * 8 + 1, 3 * 8 + 2)


def test_the_time_without_a_link_says_nothing_about_the_pace() -> None:
    watched = Watched()
    watched.watch.lost(PEER)
    watched.pass_ticks(20)
    watched.watch.connected(PEER)
    watched.speak()
    assert watched.silent_after() == SILENCE_TICKS + 1
