"""Operations on one partition, from any broker: transfer leadership, change replicas, unsafe recovery.

Decides: the successor of a leader if the caller does not choose one, time limits, and that a recovery needs
its confirming phrase. Leaves to others: finding the leader (``gateway``), which targets are allowed
(``metadata.move_planner``), moving (``reassigner``), which log survives (``unsafe_recovery``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from partitions.metadata.commands import RecoveredUnsafely
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas, find
from partitions.reassignment.unsafe_recovery import Survey, survey
from partitions.replica.replica import PartitionReplica
from partitions.routing import rpc
from partitions.routing.gateway import Gateway
from partitions.routing.partition_calls import PartitionCall
from partitions.routing.rpc import LogEnd, Place
from raftlog.clock import Clock
from raftlog.errors import Conflict, NoLeader, RaftlogError
from raftlog.node.deadline import deadline_in
from raftlog.node.group_host import GroupHost
from raftlog.types import NodeId, Term, TopicPartition

_log = logging.getLogger("raftlog.partitions")

ASK_TIMEOUT_MS: Final = 2000
LOOK_S: Final = 0.05


class Metadata(Protocol):
    """The methods of ``metadata.service.Controller`` that this module uses."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    async def change_replicas(self, request: MoveReplicas | RecoveredUnsafely, timeout_ms: int) -> TopicInfo:
        """Set a new target of a partition, or record an unsafe recovery; return the topic."""


class PartitionAdmin:
    """Changes replicas and leaders of partitions, for clients and for other brokers."""

    def __init__(self, host: GroupHost, metadata: Metadata, gateway: Gateway, clock: Clock) -> None:
        self._host = host
        self._metadata = metadata
        self._gateway = gateway
        self._clock = clock
        self._transfer = PartitionCall(
            rpc.TRANSFER,
            rpc.Transfer,
            tuple[NodeId, Term],
            self._transfer_here,
            # With neither, a repetition would transfer the leadership a second time.
            is_repeatable=lambda ask: ask.to is not None or ask.term is not None,
            effect=lambda ask: f"the leadership of {ask.place[0]} is transferred",
        )
        gateway.local.offer(self._transfer)
        self._log_end_of = PartitionCall(rpc.LOG_END, rpc.LogEndOf, LogEnd, self._end_here)
        gateway.local.offer(self._log_end_of)

    # Leadership.

    async def transfer_leadership(
        self, target: TopicPartition, to: NodeId | None, timeout_ms: int, term: Term | None = None
    ) -> tuple[NodeId, Term]:
        """Transfer leadership to ``to`` (None: the most advanced replica); return the leader and its term.

        With ``term`` the call changes nothing once a later term has a leader, so it may be repeated. Raises
        ``InvalidRequest`` if ``to`` does not vote, ``Conflict`` if no replica can take over,
        ``LeadershipNotMoved`` after ``timeout_ms``, ``NoLeader``.
        """
        return await self._gateway.call(
            target, self._transfer, lambda place, ms: rpc.Transfer(place, to, ms, term), timeout_ms
        )

    async def _transfer_here(self, replica: PartitionReplica, ask: rpc.Transfer) -> tuple[NodeId, Term]:
        group, to = replica.group, ask.to
        is_done = group.is_leader and (
            to == self._host.node_id or (ask.term is not None and ask.term < group.term)
        )
        if not is_done:
            chosen = to
            if chosen is None:
                chosen = group.successor(node for node in replica.in_sync() if self._host.is_reachable(node))
            elif chosen in group.membership.voters and not self._host.is_reachable(chosen):
                raise Conflict(f"broker {to} is not reachable; start it, or choose another", broker_id=to)
            if chosen is None and group.is_leader:
                raise Conflict(f"no other replica of {replica.target} is in sync to take over; retry later")
            await group.transfer_and_wait(NodeId(0) if chosen is None else chosen, ask.timeout_ms)
        leader = group.leader
        if leader is None:
            raise NoLeader(f"{replica.target} is electing a leader; retry", retry_after_ms=200)
        return leader, group.term

    # Replicas.

    async def change_replicas(self, request: MoveReplicas, timeout_ms: int) -> PartitionInfo:
        """Set the target of a partition; from then on the partition's leader moves the replicas to it.

        Raises as ``plan_move``.
        """
        topic = await self._metadata.change_replicas(request, timeout_ms)
        return topic.partitions[request.partition]

    async def until_settled(self, target: TopicPartition, wait_ms: int) -> bool:
        """Wait up to ``wait_ms`` until no replica of the partition moves; return whether no replica moves."""
        return await self._until(wait_ms, lambda: not self._info(target).target)

    # Unsafe recovery.

    async def survey(self, target: TopicPartition) -> Survey:
        """Ask all replicas of a partition for the ends of their logs."""
        partition = self._info(target)
        place = (target, partition.group_id)
        asked = sorted(partition.possible_replicas)
        ends = await asyncio.gather(*(self._log_end(node, place) for node in asked))
        answers = {node: end for node, end in zip(asked, ends, strict=True) if end is not None}
        return survey(target, partition.replicas, answers)

    async def recover_unsafely(
        self, target: TopicPartition, confirm: str | None, timeout_ms: int
    ) -> PartitionInfo:
        """Continue the partition with the survivor's log, if ``confirm`` is the confirming phrase.

        With another phrase, raises ``Conflict`` with the estimated loss. Raises ``Conflict``, too, if a
        majority of the replicas answers.
        """
        topic, partition = find(self._metadata.image, target.topic, target.partition)
        found = await self.survey(target)
        survivor = found.survivor
        if not found.is_needed:
            raise Conflict(
                f"a majority of the replicas of {target} answers: the partition needs no recovery",
                replicas=found.lines,
            )
        if survivor is None:
            raise Conflict(found.estimate, lost=[str(node) for node in found.lost])
        if confirm != found.phrase:
            raise Conflict(
                f"{found.estimate}. To recover the partition, send confirm: {found.phrase!r}",
                confirm=found.phrase,
                survivor=survivor,
                last_offset=found.ends[survivor].last.index,
                committed_offset=found.ends[survivor].commit_index,
                lost=[str(node) for node in found.lost],
                replicas=found.lines,
            )
        _log.warning("unsafe recovery of %s was requested: %s", target, found.estimate)
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
        """Wait up to ``wait_ms`` until a partition has a leader; return whether it has one."""
        deadline = deadline_in(wait_ms)
        while asyncio.get_running_loop().time() < deadline:
            statuses = await self._gateway.describe(target.topic, (target.partition,))
            if any(one.leader is not None for one in statuses):
                return True
            await asyncio.sleep(LOOK_S)
        return False

    async def _log_end(self, node: NodeId, place: Place) -> LogEnd | None:
        try:
            return await self._gateway.ask(node, self._log_end_of, rpc.LogEndOf(place), ASK_TIMEOUT_MS)
        except RaftlogError:
            return None

    async def _end_here(self, replica: PartitionReplica, ask: rpc.LogEndOf) -> LogEnd:
        group = replica.group
        if group.stopped is not None:
            raise NoLeader(f"the replica of {ask.place[0]} on this broker has stopped: {group.stopped}")
        status = group.status()
        return LogEnd(last=status.last, commit_index=status.commit_index, halves=status.membership.halves)

    def _info(self, target: TopicPartition) -> PartitionInfo:
        return find(self._metadata.image, target.topic, target.partition)[1]

    async def _until(self, wait_ms: int, holds: Callable[[], bool]) -> bool:
        deadline = deadline_in(wait_ms)
        while not holds():
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True
