"""After a leader's death: who stands up when, and from when on a candidate's patience is counted."""

import random

import pytest

from raftlog.core.entries import EntrySpan
from raftlog.core.inputs import Campaign, PeerUnreachable, Receive, Tick, WriteFinished
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendRequest, Heartbeat, VoteReply, VoteRequest
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import HardState, Ready, Restored, Role
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

ELECTION_TICKS = 15


def member(node: int, campaign_rank_offset: int = 0) -> Raft:
    restored = Restored(
        hard_state=HardState(Term(1), None),
        membership=Membership(frozenset(map(NodeId, (1, 2, 3)))),
        terms=(),
        snapshot=BEFORE_LOG,
        last=BEFORE_LOG,
        commit_hint=Index(-1),
    )
    return Raft(
        RaftSettings(NodeId(node), campaign_rank_offset=campaign_rank_offset), restored, random.Random(node)
    )


def ticks_until_it_campaigns(core: Raft) -> int:
    """How long a follower of node 2 waits once it hears that node 2 is gone."""
    core.step(Receive(NodeId(2), Heartbeat(term=Term(1), commit_index=Index(-1), round=1)))
    core.step(PeerUnreachable(NodeId(2)))
    return ticks_left(core)


def ticks_left(core: Raft) -> int:
    """How long the follower waits before it campaigns."""
    for ticks in range(1, 3 * ELECTION_TICKS):
        core.step(Tick())
        if core.role is not Role.FOLLOWER:
            return ticks
    raise AssertionError("it never stood up")


@pytest.mark.parametrize("campaign_rank_offset", range(6))
def test_voters_campaign_for_a_lost_leader_by_rank(campaign_rank_offset: int) -> None:
    waits = sorted(ticks_until_it_campaigns(member(node, campaign_rank_offset)) for node in (1, 3))
    assert waits[0] <= 2
    assert waits[1] - waits[0] >= 2  # time for an election before the next one begins another


def test_a_nodes_groups_go_to_different_leaders() -> None:
    first = {
        min((1, 3), key=lambda node: ticks_until_it_campaigns(member(node, campaign_rank_offset)))
        for campaign_rank_offset in range(2)
    }
    assert first == {1, 3}


# requirement: ST5
def test_a_candidates_time_begins_when_its_requests_have_left() -> None:
    core = member(1)
    ready = elected_in_advance(core)
    assert requests(ready) == []
    for _ in range(5 * ELECTION_TICKS):
        core.step(Tick())
    assert (core.role, core.term) == (Role.CANDIDATE, Term(2))  # the disk is slow; nobody has been asked yet
    finish(core, ready)
    assert len(requests(core.take_ready())) == 2
    for _ in range(3 * ELECTION_TICKS):
        core.step(Tick())
    assert core.role is Role.PRE_CANDIDATE  # nobody has answered: begin anew


# requirement: ST5
def test_a_candidate_asks_with_what_is_durable_when_its_request_leaves() -> None:
    core = member(1)
    core.step(Receive(NodeId(2), append(1)))
    written = core.take_ready()
    core.step(PeerUnreachable(NodeId(2)))
    ready = elected_in_advance(core)
    finish(core, written)
    assert core.take_ready() is None, "the new term is not durable"
    finish(core, ready)
    assert [request.last for request in requests(core.take_ready())] == [EntryId(Term(1), Index(1))] * 2


# requirement: ST5
def test_a_voter_that_refuses_for_its_longer_log_campaigns_soon() -> None:
    core = follower_of_a_dead_leader()
    core.step(Receive(NodeId(1), request_from_behind(is_pre_vote=False)))
    assert (core.role, core.term) == (Role.FOLLOWER, Term(2))
    assert ticks_left(core) <= 5


# requirement: ST5
def test_a_voter_whose_pre_vote_came_too_early_asks_again_when_it_refuses_another() -> None:
    core = follower_of_a_dead_leader()
    core.step(Campaign())
    core.step(Receive(NodeId(1), VoteReply(term=Term(1), asked=Term(2), granted=False, is_pre_vote=True)))
    core.step(Receive(NodeId(1), request_from_behind(is_pre_vote=True)))
    core.take_ready()
    core.step(Tick())
    ready = core.take_ready()
    assert ready is not None
    assert [(each.to, type(each.message)) for each in ready.send] == [(1, VoteRequest), (2, VoteRequest)]


def follower_of_a_dead_leader() -> Raft:
    """A follower with two durable entries of a leader that has died."""
    core = member(3)
    core.step(Receive(NodeId(2), append(1)))
    finish(core, core.take_ready())
    core.step(PeerUnreachable(NodeId(2)))
    return core


def request_from_behind(*, is_pre_vote: bool) -> VoteRequest:
    """From a candidate with the first of these entries."""
    return VoteRequest(term=Term(2), last=EntryId(Term(1), Index(0)), is_pre_vote=is_pre_vote)


# requirement: ST5
def test_a_voter_that_hears_its_leader_does_not_campaign_for_a_candidate_that_is_behind() -> None:
    core = member(3)
    core.step(Receive(NodeId(2), append(1)))
    finish(core, core.take_ready())
    request = request_from_behind(is_pre_vote=True)
    for _ in range(ELECTION_TICKS // 2):
        core.step(Receive(NodeId(1), request))
        core.step(Tick())
    assert (core.role, core.leader) == (Role.FOLLOWER, NodeId(2))


def append(last: int) -> AppendRequest:
    """The entries from 0 to ``last`` of the leader of term 1, none committed."""
    span = EntrySpan(Term(1), Index(0), Index(last))
    return AppendRequest(term=Term(1), previous=BEFORE_LOG, spans=(span,), commit_index=Index(-1))


def elected_in_advance(core: Raft) -> Ready:
    """Win a pre-vote; what is to be done then."""
    core.step(Campaign())
    core.step(Receive(NodeId(3), VoteReply(term=Term(1), asked=Term(2), granted=True, is_pre_vote=True)))
    ready = core.take_ready()
    assert ready is not None
    assert ready.write is not None
    return ready


def finish(core: Raft, ready: Ready | None) -> None:
    """What it has to write is durable."""
    assert ready is not None
    assert ready.write is not None
    core.step(WriteFinished(ready.write.write_id))


def requests(ready: Ready | None) -> list[VoteRequest]:
    """The requests for votes in an election, also those that wait for the disk."""
    assert ready is not None
    waiting = ready.write.send_after if ready.write is not None else ()
    messages = [envelope.message for envelope in (*ready.send, *waiting)]
    return [each for each in messages if isinstance(each, VoteRequest) and not each.is_pre_vote]
