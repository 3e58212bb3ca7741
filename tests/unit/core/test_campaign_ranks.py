"""After a leader's death: who stands up when, and from when on a candidate's patience is counted."""

import random

import pytest

from raftlog.core.inputs import Campaign, PeerUnreachable, Receive, Tick, WriteFinished
from raftlog.core.membership import Membership
from raftlog.core.messages import Heartbeat, VoteReply, VoteRequest
from raftlog.core.raft import Raft, RaftSettings
from raftlog.core.ready import HardState, Restored, Role
from raftlog.types import BEFORE_LOG, Index, NodeId, Term

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


def test_a_candidates_time_begins_when_its_requests_have_left() -> None:
    core = member(1)
    core.step(Campaign())
    core.step(Receive(NodeId(2), VoteReply(term=Term(1), asked=Term(2), granted=True, is_pre_vote=True)))
    ready = core.take_ready()
    assert ready is not None
    assert ready.write is not None
    assert [type(envelope.message) for envelope in ready.write.send_after] == [VoteRequest, VoteRequest]
    for _ in range(5 * ELECTION_TICKS):
        core.step(Tick())
    assert (core.role, core.term) == (Role.CANDIDATE, Term(2))  # the disk is slow; nobody has been asked yet
    core.step(WriteFinished(ready.write.write_id))
    for _ in range(3 * ELECTION_TICKS):
        core.step(Tick())
    assert core.role is Role.PRE_CANDIDATE  # nobody has answered: begin anew
