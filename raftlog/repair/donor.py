"""The rules by which a leader's log may replace a damaged log, and which part of that log it must replace.

Decides: which leader, up to which index its log is copied, and the term and vote to store with it. Leaves to
others: in which terms the damaged replica may have voted or acknowledged, and the copying (``repairer``).
"""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.core.ready import HardState
from raftlog.repair.service import Told
from raftlog.repair.target import CannotRepair, NeedsFullResync, NeedsOperator, RepairTarget
from raftlog.repair.verify import VerifyReport
from raftlog.types import NodeId, Term


def leader_of(repair_target: RepairTarget, told: Mapping[NodeId, Told], term: Term, trouble: str) -> NodeId:
    """The peer that leads ``term`` or a later term. Raises ``CannotRepair`` if no peer says that it leads."""
    for peer, answer in told.items():
        if answer.is_leader and answer.term >= term:
            return peer
    if not repair_target.peers:
        raise NeedsOperator(f"{trouble}, and there is no other replica; restore its files or delete it")
    silent = [peer for peer in repair_target.peers if peer not in told]
    if silent:
        raise CannotRepair(f"{trouble}: brokers {silent} do not answer")
    raise CannotRepair(f"{trouble}: no replica has all of them, and no replica leads yet")


def members_told(seen: VerifyReport, told: Mapping[NodeId, Told]) -> bytes:
    """The encoded members at the log's start, as a peer has sent them.

    Raises ``CannotRepair`` if no peer knows them yet, or ``NeedsFullResync`` if waiting is useless. A leader
    whose log reaches down to that start will know the members, once enough is committed.
    """
    known = next((answer.members for answer in told.values() if answer.members), b"")
    if known:
        return known
    trouble, start = "no replica knows the members where the log begins", seen.state.log_start
    if any(answer.is_leader and (answer.first > start or start == 0) for answer in told.values()):
        raise NeedsFullResync(trouble)
    raise CannotRepair(trouble)


def owed(seen: VerifyReport, leader: Told) -> int:
    """The last index that this replica may have acknowledged, but at most the last index of the
    leader's log.
    """
    end = seen.holes[-1].last if seen.holes else seen.last
    if end is None or seen.doubt is not None or seen.torn or seen.state.is_given_up:
        return leader.last
    return min(leader.last, max(end, seen.state.durable_index, seen.covers - 1, seen.last))


def hard_state_in(term: Term, seen: VerifyReport, node_id: NodeId) -> HardState:
    """The hard state to store with a leader's log.

    The replica's own hard state stays, unless it is in doubt or ``term`` is later. Then the newer term is
    stored, with a vote for this replica itself.
    """
    own = seen.state.hard_state
    if seen.doubt is None and term <= own.term:
        return own
    return HardState(max(term, own.term), node_id, own.is_rejoining)
