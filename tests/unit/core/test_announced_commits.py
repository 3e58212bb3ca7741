"""A leader that announces commits tells each follower at once what it holds and is committed."""

from __future__ import annotations

from raftlog.core.inputs import Propose
from raftlog.core.messages import Heartbeat
from raftlog.core.ready import Appended
from raftlog.types import NodeId, Token
from tests.helpers.raft_member import THREE, TWO, MemberUnderTest, members


def _proposed(member: MemberUnderTest) -> int:
    """The index of an entry that no follower has yet."""
    member.become_leader()
    member.feed(Propose(Token(1), 1))
    (appended,) = member.settled
    assert isinstance(appended, Appended)
    return int(appended.id.index)


def _told(member: MemberUnderTest, to: NodeId) -> list[int]:
    return [int(heartbeat.commit_index) for heartbeat in member.said(Heartbeat, to)]


def test_followers_are_told_without_a_tick() -> None:
    member = MemberUnderTest(announces_commits=True)
    index = _proposed(member)
    member.forget()
    member.acknowledge(TWO, index)
    assert member.core.commit_index == index
    assert _told(member, TWO) == [index]


def test_a_follower_is_told_of_no_more_than_it_holds_and_of_each_index_once() -> None:
    member = MemberUnderTest(announces_commits=True)
    index = _proposed(member)
    member.forget()
    member.acknowledge(TWO, index)
    assert _told(member, THREE) == []  # it was told of what it holds when that was committed
    member.acknowledge(THREE, index)
    member.acknowledge(THREE, index)
    assert _told(member, THREE) == [index]
    assert _told(member, TWO) == [index]


def test_a_learner_is_told_too() -> None:
    # requirement: F2
    member = MemberUnderTest(membership=members(1, 2, 3, learners=[4]), announces_commits=True)
    index = _proposed(member)
    member.acknowledge(TWO, index)
    member.forget()
    member.acknowledge(NodeId(4), index)
    assert _told(member, NodeId(4)) == [index]


def test_other_groups_wait_for_the_next_append_or_heartbeat() -> None:
    member = MemberUnderTest()
    index = _proposed(member)
    member.forget()
    member.acknowledge(TWO, index)
    assert member.core.commit_index == index
    assert member.said(Heartbeat) == []
