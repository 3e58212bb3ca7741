"""Waits for the acknowledgement of a produce request.

Decides: the condition of each kind of acknowledgement, and the error at the time limit. Leaves to others:
committing (``raftlog``) and which replicas are in sync (``replica``).

Once records have been appended, no error says that they were not stored: at the time limit the caller
receives ``CommitUnknown``, with ``committed`` True if the records are committed and only replicas are
missing. If a caller disconnects, the proposal continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from partitions.values import Acks, AcksKind, Durability
from raftlog.errors import CommitUnknown, InvalidRequest
from raftlog.node.group.pending_requests import Proposal
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import Index, NodeId, Offset, Term
from raftlog.units import counted

LOOK_AGAIN_S: Final = 0.2  # interval of polling: no event announces a replica that falls out of sync

Nodes = frozenset[NodeId]


class Placed(Struct, frozen=True, kw_only=True):
    """Records that were appended to the leader's log.

    ``proposal`` is None once the records are known to be committed.
    """

    first: Offset
    last: Index
    leader_epoch: Term
    timestamp_ms: int | None
    was_duplicate: bool
    proposal: Proposal[None] | None
    in_one_run: bool = True  # whether the offsets ``first`` to ``last`` have these records only

    @property
    def is_committed(self) -> bool:
        """Whether the records are committed, as far as this replica knows."""
        return self.proposal is None or self.proposal.is_applied


def check_in_transaction(acks: Acks) -> None:
    """Raise ``InvalidRequest`` if a transaction asks for less than a quorum: it must not lose records."""
    if acks.kind in (AcksKind.NONE, AcksKind.LEADER):
        raise InvalidRequest(
            f"acks is {acks}, but records of a transaction must be committed before they are acknowledged; "
            "send quorum, every or a number of replicas",
            field="acks",
        )


def check_count(acks: Acks, replication_factor: int) -> None:
    """Raise ``InvalidRequest`` for a number of replicas below 1 or above the replication factor."""
    if not 1 <= acks.count <= replication_factor:
        raise InvalidRequest(
            f"acks is {acks.count}, but the partition has {counted(replication_factor, 'replica')}; "
            f"send 1 to {replication_factor}, quorum or every",
            field="acks",
        )


async def acknowledged(
    group: RaftGroup[None], placed: Placed, acks: Acks, in_sync: Callable[[], Nodes], deadline: float
) -> Durability:
    """Wait until ``acks`` is reached; return the durability. ``deadline`` is a time of the running loop.

    Raises ``CommitUnknown`` if the deadline passes or leadership is lost first, and the errors of the
    proposal's outcome.
    """
    if acks.kind is AcksKind.NONE:
        return Durability(acks=str(acks), committed=False, fsynced=False, replicas=0)
    try:
        if acks.kind is AcksKind.LEADER:
            if placed.proposal is not None:
                async with asyncio.timeout_at(deadline):
                    await group.durable(placed.proposal)
        elif placed.proposal is not None:
            await placed.proposal.ended(deadline)
        if acks.kind is AcksKind.COUNT:
            await _held(
                group, placed, lambda nodes: len(nodes) >= acks.count and group.leader in nodes, deadline
            )
        elif acks.kind is AcksKind.EVERY:
            await _held(group, placed, lambda nodes: in_sync() <= nodes, deadline)
    except TimeoutError:
        raise _unknown(placed, acks, "the time ran out") from None
    except CommitUnknown as error:
        raise _unknown(placed, acks, str(error)) from error
    committed = acks.kind is not AcksKind.LEADER or placed.proposal is None
    quorum = group.quorum_since(placed.last)
    return Durability(
        acks=str(acks),
        committed=committed,
        fsynced=True,
        replicas=max(group.replicas_holding(placed.last), quorum if committed else 1),
    )


async def _held(
    group: RaftGroup[None], placed: Placed, is_enough: Callable[[Nodes], bool], deadline: float
) -> None:
    """Wait until ``is_enough`` is True for the nodes that hold the records durably."""
    loop = asyncio.get_running_loop()
    while group.is_leader:
        matches = group.match_index
        holding = frozenset([node for node, match in matches.items() if match >= placed.last])
        if is_enough(holding):
            return
        now = loop.time()
        if now >= deadline:
            raise TimeoutError
        look_again_at = min(now + LOOK_AGAIN_S, deadline)
        if placed.proposal is None:
            await asyncio.sleep(look_again_at - now)
        else:
            await group.replicated(placed.proposal, len(holding) + 1, look_again_at)
    raise CommitUnknown("leadership was lost")


def _unknown(placed: Placed, acks: Acks, why: str) -> CommitUnknown:
    fate = "the records are committed" if placed.is_committed else "the records may still be committed"
    return CommitUnknown(f"acks={acks} was not reached: {why}; {fate}", committed=placed.is_committed or None)
