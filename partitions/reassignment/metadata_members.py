"""Changes the members of the metadata group step by step, at the active controller.

Decides: when the members are checked, and which brokers are asked. Leaves to others: the target voters
(``metadata.voters``), the next step (``steps``), safety (Raft), opening the log
(``partitions.hosting.hosted_metadata``).

Between checks only observations are kept. So a new controller, and this controller after a failed step,
derive the next step from the log and the metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from partitions.metadata.image import MetadataImage
from partitions.reassignment.steps import Change, Prepare, Step, View, can_commit, next_step
from partitions.routing import rpc
from raftlog.core.membership import Membership
from raftlog.core.ready import RaftStatus
from raftlog.errors import RaftlogError
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.storage.filesystem import Buffer
from raftlog.types import METADATA_GROUP, Index, NodeId, Term

_log = logging.getLogger("raftlog.controller")

LOOK_S: Final = 0.1  # a learner has caught up when it has all entries of the previous look
ASK_TIMEOUT_MS: Final = 2000
CHANGE_TIMEOUT_S: Final = 10.0  # before the next look; the change itself may continue
SAY_AGAIN_S: Final = 5.0


class Metadata(Protocol):
    """The methods of ``metadata.service.Controller`` that this module uses."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    def wanted_voters(self) -> frozenset[NodeId] | None:
        """The target voters of the metadata group; None unless this broker is the active controller."""


@dataclass(slots=True)
class _Looks:
    """The observations that a leader of the metadata group has made in one term."""

    term: Term
    goal: Index
    prepared: set[NodeId] = field(default_factory=set)


class MetadataMembers:
    """Changes the members of the metadata group while this broker leads it.

    All on the event loop's thread.
    """

    def __init__(self, host: GroupHost, metadata: Metadata) -> None:
        self._host = host
        self._metadata = metadata
        self._looks: _Looks | None = None
        self._complained_at = float("-inf")
        host.calls.serve(rpc.METADATA_PREPARED, self._serve_prepared)

    async def run(self) -> None:
        """Change the members whenever this broker leads the group, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except (RaftlogError, TimeoutError) as error:
                now = self._host.clock.monotonic()
                if now - self._complained_at > SAY_AGAIN_S:
                    self._complained_at = now
                    _log.warning("cannot change the members of the metadata group yet: %s", error)

    async def _look(self) -> None:
        group, target = self._host.groups.get(METADATA_GROUP), self._metadata.wanted_voters()
        if group is None or target is None:
            self._looks = None
            return
        looks = self._looks
        if looks is None or looks.term != group.term:
            looks = self._looks = _Looks(group.term, group.last_index)
        step = self._next(group.status(), target, looks)
        looks.goal = group.last_index
        match step:
            case Prepare(nodes):
                await self._prepare(looks, nodes)
            case Change(membership) if membership != group.membership:
                await self._change(group, membership)
            case _:
                pass  # a learner must catch up, or the members are the target

    def _next(self, status: RaftStatus, target: frozenset[NodeId], looks: _Looks) -> Step:
        members, image = status.membership, self._metadata.image
        view = View(
            target=target,
            membership=members,
            is_committed=status.commit_index >= status.membership_index,
            has_committed=True,  # a reappearing change of an earlier leader is corrected by the next step
            prepared=frozenset(looks.prepared),
            learner_match=status.learner_match_index,
            goal=looks.goal,
            observers=(members.members | image.brokers.keys()) - target - image.forgotten.keys(),
        )
        return next_step(view)

    async def _prepare(self, looks: _Looks, nodes: frozenset[NodeId]) -> None:
        answers = await self._ask_prepared([node for node in nodes if self._host.is_reachable(node)])
        looks.prepared |= {node for node, answer in answers.items() if answer.is_open}

    async def _change(self, group: RaftGroup[object], membership: Membership) -> None:
        voters, me = membership.voters, self._host.node_id
        if voters != group.membership.voters:
            answers = await self._ask_prepared(voters - {me})
            able = {node for node, answer in answers.items() if answer.is_open and not answer.is_rejoining}
            if not can_commit(membership, {me, *able}):
                return
        _log.warning("the metadata group: %s", _words(membership))
        async with asyncio.timeout(CHANGE_TIMEOUT_S):
            await group.change_membership(membership)

    async def _ask_prepared(self, nodes: Collection[NodeId]) -> Mapping[NodeId, rpc.PreparedAnswer]:
        """Ask brokers whether they have opened the metadata log; return the answers that arrived, by broker.

        The calls use the links that carry the messages of the metadata group.
        """

        async def ask(node: NodeId) -> rpc.PreparedAnswer | None:
            try:
                answer, _ = await self._host.calls.call(
                    node, rpc.METADATA_PREPARED, b"", timeout_ms=ASK_TIMEOUT_MS
                )
            except RaftlogError:
                return None
            return decode_body(answer, rpc.PreparedAnswer)

        order = sorted(nodes)
        answers = zip(order, await asyncio.gather(*map(ask, order)), strict=True)
        return {node: answer for node, answer in answers if answer is not None}

    async def _serve_prepared(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        """Answer whether the metadata log is open on this broker, and whether its replica is rejoining."""
        group = self._host.groups.get(METADATA_GROUP)
        is_open = group is not None and group.stopped is None
        is_rejoining = group is not None and group.is_rejoining
        return encode_body(rpc.PreparedAnswer(is_open, is_rejoining, "")), ()


def _words(membership: Membership) -> str:
    return f"voters {sorted(membership.voters)}, learners {sorted(membership.learners)}"
