"""Operations on one partition, from any broker: transfer leadership, change replicas, unsafe recovery.

Decides: which successor is meant when none is named, how long is waited, and that a recovery needs its
phrase. Leaves to others: finding the leader (``gateway``), which targets are allowed
(``metadata.move_planner``), moving (``reassigner``), whose log survives (``unsafe_recovery``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from partitions.metadata.commands import RecoveredUnsafely
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas, find
from partitions.reassignment.unsafe_recovery import Survey, survey
from partitions.routing import rpc
from partitions.routing.gateway import Gateway
from partitions.routing.rpc import LogEnd, Place
from raftlog.clock import Clock
from raftlog.errors import Conflict, NoLeader, RaftlogError
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId, Term, TopicPartition

_log = logging.getLogger("raftlog.partitions")

ASK_TIMEOUT_MS: Final = 2000
GRACE_MS: Final = 500  # the leader's own answer says more than a time-out here
LOOK_S: Final = 0.05


class Metadata(Protocol):
    """The part of ``metadata.service.Controller`` that is needed here."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata here."""

    async def change_replicas(self, request: MoveReplicas | RecoveredUnsafely, timeout_ms: int) -> TopicInfo:
        """A new target, or a recovery; the topic as it is then."""


class PartitionAdmin:
    """Changes replicas and leaders of partitions, from one broker. It answers the other brokers, too."""

    def __init__(self, host: GroupHost, metadata: Metadata, gateway: Gateway, clock: Clock) -> None:
        self._host = host
        self._metadata = metadata
        self._gateway = gateway
        self._clock = clock
        gateway.relay.serve(rpc.TRANSFER, self._serve_transfer)
        gateway.relay.serve(rpc.LOG_END, self._serve_log_end)

    # Leadership.

    async def transfer_leadership(
        self, target: TopicPartition, to: NodeId | None, timeout_ms: int
    ) -> tuple[NodeId, Term]:
        """Transfer leadership; returns the leader and its term. Without ``to`` the replica that is furthest.

        Raises ``InvalidRequest`` where ``to`` does not vote, ``Conflict`` where no replica can take over,
        ``LeadershipNotMoved`` when the time runs out, ``NoLeader``.
        """
        deadline = deadline_in(timeout_ms)

        async def ask(node: NodeId, place: Place) -> tuple[NodeId, Term]:
            left_ms = ms_until(deadline)
            if node == self._host.node_id:
                return await self._transfer(place, to, left_ms)
            head = encode_body(rpc.Transfer(place, to, left_ms))
            answer, _ = await self._gateway.relay.call(
                node, rpc.TRANSFER, head, timeout_ms=left_ms + GRACE_MS
            )
            return decode_body(answer, tuple[NodeId, Term])

        # Without ``to`` a repetition would transfer leadership once more.
        return await self._gateway.at_leader(target, ask, deadline, lambda: to is not None)

    async def _transfer(self, place: Place, to: NodeId | None, timeout_ms: int) -> tuple[NodeId, Term]:
        replica = self._gateway.local.here(place)
        group = replica.group
        if to != self._host.node_id or not group.is_leader:
            chosen = to
            if chosen is None:
                chosen = group.successor(node for node in replica.in_sync() if self._host.is_reachable(node))
            elif chosen in group.membership.voters and not self._host.is_reachable(chosen):
                raise Conflict(f"broker {to} is not reachable; start it, or choose another", broker_id=to)
            if chosen is None and group.is_leader:
                raise Conflict(f"no other replica of {replica.target} is in sync to take over")
            await group.transfer_and_wait(NodeId(0) if chosen is None else chosen, timeout_ms)
        leader = group.leader
        if leader is None:
            raise NoLeader(f"{replica.target} is electing a leader", retry_after_ms=200)
        return leader, group.term

    async def _serve_transfer(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, rpc.Transfer)
        return encode_body(await self._transfer(ask.place, ask.to, ask.timeout_ms)), ()

    # Replicas.

    async def change_replicas(self, request: MoveReplicas, timeout_ms: int) -> PartitionInfo:
        """Make this the target; it is worked towards from now on. Raises as ``plan_move``."""
        topic = await self._metadata.change_replicas(request, timeout_ms)
        return topic.partitions[request.partition]

    async def until_settled(self, target: TopicPartition, wait_ms: int) -> bool:
        """Whether no replica of a partition moves any more, within this time."""
        return await self._until(wait_ms, lambda: not self._info(target).target)

    # The last resort.

    async def survey(self, target: TopicPartition) -> Survey:
        """Ask all replicas how much they hold."""
        partition = self._info(target)
        place = (target, partition.group_id)
        asked = sorted(partition.possible_replicas)
        ends = await asyncio.gather(*(self._log_end(node, place) for node in asked))
        answers = {node: end for node, end in zip(asked, ends, strict=True) if end is not None}
        return survey(target, partition.replicas, answers)

    async def recover_unsafely(
        self, target: TopicPartition, confirm: str | None, timeout_ms: int
    ) -> PartitionInfo:
        """Make the survivor's log the truth, when ``confirm`` is the phrase that belongs to it.

        Raises ``Conflict`` with the estimate when it is not, and where a majority can be asked.
        """
        topic, partition = find(self._metadata.image, target.topic, target.partition)
        found = await self.survey(target)
        survivor = found.survivor
        if not found.is_needed:
            raise Conflict(f"a majority of {target} answers: it needs no recovery", replicas=found.lines)
        if survivor is None:
            raise Conflict(found.estimate, lost=[str(node) for node in found.lost])
        if confirm != found.phrase:
            raise Conflict(
                f"{found.estimate}. To do it, send confirm: {found.phrase!r}",
                confirm=found.phrase,
                survivor=survivor,
                last_offset=found.ends[survivor].last.index,
                committed_offset=found.ends[survivor].commit_index,
                lost=[str(node) for node in found.lost],
                replicas=found.lines,
            )
        _log.warning("unsafe recovery of %s is asked for: %s", target, found.estimate)
        end = found.ends[survivor]
        recovered = await self._metadata.change_replicas(
            RecoveredUnsafely(
                target.topic,
                topic.topic_id,
                target.partition,
                partition.group_id,
                survivor,
                found.lost,
                end.last.term,
                end.last.index,
                end.commit_index,
                self._clock.wall_ms(),
            ),
            timeout_ms,
        )
        _log.warning("%s was recovered unsafely: %s", target, found.phrase)
        return recovered.partitions[target.partition]

    async def until_led(self, target: TopicPartition, wait_ms: int) -> bool:
        """Whether a partition finds a leader within this time."""
        deadline = deadline_in(wait_ms)
        while asyncio.get_running_loop().time() < deadline:
            statuses = await self._gateway.describe(target.topic, (target.partition,))
            if any(one.leader is not None for one in statuses):
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def _log_end(self, node: NodeId, place: Place) -> LogEnd | None:
        try:
            if node == self._host.node_id:
                return self._end_here(place)
            head = encode_body(rpc.LogEndOf(place))
            answer, _ = await self._gateway.relay.call(node, rpc.LOG_END, head, timeout_ms=ASK_TIMEOUT_MS)
            return decode_body(answer, LogEnd)
        except RaftlogError:
            return None

    def _end_here(self, place: Place) -> LogEnd:
        group = self._gateway.local.here(place).group
        if group.stopped is not None:
            raise NoLeader(f"the replica of {place[0]} has stopped here: {group.stopped}")
        status = group.status()
        return LogEnd(last=status.last, commit_index=status.commit_index, halves=status.membership.halves)

    async def _serve_log_end(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        return encode_body(self._end_here(decode_body(head, rpc.LogEndOf).place)), ()

    def _info(self, target: TopicPartition) -> PartitionInfo:
        return find(self._metadata.image, target.topic, target.partition)[1]

    async def _until(self, wait_ms: int, holds: Callable[[], bool]) -> bool:
        deadline = deadline_in(wait_ms)
        while not holds():
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True
