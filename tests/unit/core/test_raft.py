"""The public face of the core: settings, status, what a restart reports, and members that do not vote."""

import random

import pytest

from raftlog.core.inputs import Campaign, PeerUnreachable, Propose, Tick
from raftlog.core.membership import Membership
from raftlog.core.messages import HeartbeatReply
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import HardState, Restored, Role
from raftlog.types import EntryId, Index, NodeId, Term, Token
from tests.helpers.raft_member import ELECTION_TICKS, ME, THREE, TWO, MemberUnderTest, entry, members


def restored(
    *, voters: set[int], snapshot: EntryId, last: EntryId, terms: tuple[EntryId, ...], hint: int
) -> Restored:
    return Restored(
        hard_state=HardState(Term(4), None),
        membership=Membership(frozenset(NodeId(voter) for voter in voters)),
        terms=terms,
        snapshot=snapshot,
        last=last,
        commit_hint=Index(hint),
    )


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"heartbeat_ticks": 15}, "heartbeat_ticks"),
        ({"heartbeat_ticks": 0}, "heartbeat_ticks"),
        ({"appends_in_flight_max": 0}, "appends_in_flight_max"),
        ({"quiesce_ticks": 3}, "quiesce_ticks"),
    ],
)
def test_settings_that_contradict_one_another_are_refused_by_name(
    settings: dict[str, int], field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        RaftSettings(ME, **settings)


def test_the_first_ready_after_a_restart_tells_what_is_committed() -> None:
    core = Raft(
        RaftSettings(ME),
        restored(voters={1, 2, 3}, snapshot=entry(2, 9), last=entry(3, 20), terms=(entry(3, 10),), hint=15),
        random.Random(1),
    )
    ready = core.take_ready()
    assert ready is not None
    assert (ready.commit_index, core.commit_index, core.durable_index) == (15, 15, 20)
    assert core.take_ready() is None


def test_a_log_that_was_cut_in_front_is_committed_up_to_the_cut() -> None:
    core = Raft(
        RaftSettings(ME),
        restored(voters={1, 2, 3}, snapshot=entry(2, 9), last=entry(2, 9), terms=(), hint=-1),
        random.Random(1),
    )
    assert (core.commit_index, core.last, core.take_ready()) == (9, entry(2, 9), None)


def test_a_member_that_does_not_vote_never_stands_for_election() -> None:
    core = Raft(
        RaftSettings(ME),
        restored(voters={2, 3}, snapshot=entry(0, -1), last=entry(0, -1), terms=(), hint=-1),
        random.Random(1),
    )
    core.step(Campaign())
    core.step(PeerUnreachable(TWO))
    for _ in range(100):
        core.step(Tick())
    assert (core.role, core.take_ready()) == (Role.FOLLOWER, None)


def test_the_status_of_a_leader_tells_how_far_its_peers_are() -> None:
    member = MemberUnderTest()
    member.become_leader()
    member.feed(Propose(Token(1), 5))
    member.acknowledge(TWO, 4)
    member.tick(2)
    member.hear(THREE, HeartbeatReply(term=Term(1), round=1))
    status = member.core.status()
    assert (status.role, status.leader, status.term) == (Role.LEADER, ME, 1)
    assert status.match_index == {ME: 4, TWO: 4, THREE: -1}
    assert status.heard_ticks_ago == {TWO: 2, THREE: 0}
    assert (status.last, status.durable_index, status.commit_index) == (entry(1, 4), 4, 4)


def test_the_status_of_a_follower_tells_nothing_of_others() -> None:
    member = MemberUnderTest()
    member.follow(TWO)
    status = member.core.status()
    assert (status.role, status.leader, status.match_index, status.heard_ticks_ago) == (
        Role.FOLLOWER,
        TWO,
        {},
        {},
    )


def test_nothing_happened_means_no_ready() -> None:
    member = MemberUnderTest()
    member.become_leader()
    assert member.core.take_ready() is None
    member.hear(TWO, HeartbeatReply(term=Term(1), round=0))
    assert member.core.take_ready() is None


def test_a_member_that_does_not_vote_reminds_a_silent_leader_once_and_then_sleeps() -> None:
    member = MemberUnderTest(membership=members(2, 3, learners=[1]))
    member.follow(TWO, round=7)
    member.forget()
    member.tick(2 * ELECTION_TICKS)
    assert (member.sent, member.core.leader) == ([(TWO, HeartbeatReply(term=Term(1), round=0))], None)
    assert not member.core.is_quiescent
    member.tick(2 * ELECTION_TICKS)
    assert member.core.is_quiescent
    member.follow(TWO, round=8)
    assert (member.core.is_quiescent, member.core.leader) == (False, TWO)


def test_the_status_tells_voters_from_learners() -> None:
    member = MemberUnderTest(membership=members(1, 2, 3, learners=[4]))
    member.become_leader()
    member.acknowledge(NodeId(4), -1)
    status = member.core.status()
    assert (set(status.match_index), set(status.learner_match_index)) == ({1, 2, 3}, {4})
    assert set(status.heard_ticks_ago) == {2, 3, 4}
    assert (status.membership, status.membership_index) == (members(1, 2, 3, learners=[4]), -1)


def test_a_demoted_voter_counts_until_the_joint_membership_is_left() -> None:
    membership = members(1, 2, learners=[3], outgoing=[1, 2, 3])
    assert membership.all_voters == {1, 2, 3}
    assert membership.leave_joint() == members(1, 2, learners=[3])
    assert members(1, 2, 3).enter_joint(members(1, 2, learners=[3])) == membership
