"""Moves the replicas of partitions with a target, step by step, at the partition's leader.

Decides: when a partition is checked, which brokers count as prepared, and when a replica is stuck. Leaves to
others: the next step (``steps``), safety (Raft), the target (the metadata), opening and deleting replicas
(``replica_manager``).

Between checks only observations are kept. So a new leader, and this leader after a failed step, derive the
next step from the log and the metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, assert_never

from partitions.metadata.commands import ReplicasChanged
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.refusals import MoveStuck
from partitions.reassignment.steps import (
    Change,
    Prepare,
    Report,
    ReportStuck,
    Step,
    View,
    Wait,
    can_commit,
    next_step,
)
from partitions.replica.replica import PartitionReplica
from partitions.routing import rpc
from raftlog.core.membership import Membership
from raftlog.errors import RaftlogError
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.types import Index, NodeId, Term, TopicPartition

_log = logging.getLogger("raftlog.partitions")

LOOK_S: Final = 0.1  # a learner has caught up when it has all entries of the previous look
ASK_TIMEOUT_MS: Final = 2000
REPORT_TIMEOUT_MS: Final = 5000
CONFIRM_TIMEOUT_MS: Final = 2000
STUCK_AFTER_S: Final = 10.0  # much longer than a replica needs to open
CHANGE_TIMEOUT_S: Final = 10.0  # before the next look; the change itself may continue
SAY_AGAIN_S: Final = 5.0
REASON_CHARS_MAX: Final = 300

Key = tuple[str, int]


class Patience:
    """The time for which each new replica of one move has made no progress."""

    def __init__(self) -> None:
        self._waited: dict[NodeId, tuple[Index | None, float]] = {}

    def stuck(self, now_s: float, progress: Mapping[NodeId, Index | None]) -> frozenset[NodeId]:
        """The replicas whose progress has not changed for ``STUCK_AFTER_S``.

        A replica with progress None is not a learner yet.
        """
        waited: dict[NodeId, tuple[Index | None, float]] = {}
        for node, reached in progress.items():
            before = self._waited.get(node)
            waited[node] = before if before is not None and before[0] == reached else (reached, now_s)
        self._waited = waited
        return frozenset(node for node, (_, since) in waited.items() if now_s - since >= STUCK_AFTER_S)


class Metadata(Protocol):
    """The methods of ``metadata.service.Controller`` that this module uses."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Metadata with all changes acknowledged before this call. Raises ``NoLeader``."""

    async def change_replicas(self, request: ReplicasChanged, timeout_ms: int) -> TopicInfo:
        """Report the current voters of a partition."""

    async def report_stuck(self, report: MoveStuck, timeout_ms: int) -> None:
        """Report a broker that does not open a new replica of a partition."""


_SILENT: Final = rpc.PreparedAnswer(is_open=False, is_rejoining=False, reason="it does not answer the leader")


@dataclass(slots=True)
class _Move:
    """The progress towards one target in one leader epoch."""

    epoch: tuple[Term, int]  # term, and metadata version of the target
    goal: Index
    prepared: set[NodeId] = field(default_factory=set)
    closed: frozenset[NodeId] = frozenset()  # new replicas that were not open when they should have voted
    patience: Patience = field(default_factory=Patience)
    reported_at: float = float("-inf")
    step: asyncio.Task[None] | None = None
    complained_at: float = float("-inf")


class Reassigner:
    """Moves the replicas of partitions that this broker leads. All on the event loop's thread."""

    def __init__(self, host: GroupHost, metadata: Metadata, replicas: Mapping[Key, PartitionReplica]) -> None:
        self._host = host
        self._metadata = metadata
        self._replicas = replicas
        self._moves: dict[Key, _Move] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to check for partitions to move."""
        self._task = self._host.begin_duty(self._run)

    async def stop(self) -> None:
        """Stop checking and cancel the steps under way; the next leader continues the moves."""
        tasks = [self._task, *(move.step for move in self._moves.values())]
        waiting = [task for task in tasks if task is not None]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _run(self) -> None:
        seen: Mapping[str, TopicInfo] = {}
        moving: list[Key] = []
        while True:
            topics = self._metadata.image.topics
            if topics is not seen:
                seen, moving = topics, list(_moving(topics))
            for key in list(self._moves):
                if key not in moving:
                    self._forget(key)
            for key in moving:
                self._look(key)
            await asyncio.sleep(LOOK_S)

    def _look(self, key: Key) -> None:
        replica, info = self._replicas.get(key), self._info(key)
        if replica is None or info is None or not replica.group.is_ready:
            self._forget(key)
            return
        group = replica.group
        if group.group_id != info.group_id:
            return
        epoch = (group.term, info.version)
        move = self._moves.get(key)
        if move is None or move.epoch != epoch:
            self._forget(key)
            move = self._moves[key] = _Move(epoch, group.last_index)
        if move.step is None:
            step = next_step(_view(replica, info, move, self._host.clock.monotonic()))
            move.goal = group.last_index
            if not isinstance(step, Wait):
                move.step = self._host.begin(self._take(key, replica, info, move, step), group.group_id)

    async def _take(
        self, key: Key, replica: PartitionReplica, info: PartitionInfo, move: _Move, step: Step
    ) -> None:
        try:
            match step:
                case Prepare(nodes):
                    answers = await self._ask_prepared(key, info, nodes, is_added=True)
                    move.prepared |= {node for node, answer in answers.items() if answer.is_open}
                case ReportStuck(nodes):
                    move.reported_at = self._host.clock.monotonic()
                    await self._report_stuck(key, info, nodes)
                case Change(membership):
                    if not await self._is_current(key, info, move):
                        return
                    if not await self._can_commit(key, info, replica, move, membership):
                        return
                    _log.info("%s/%s: %s", *key, _words(membership))
                    async with asyncio.timeout(CHANGE_TIMEOUT_S):
                        await replica.group.change_membership(membership)
                    move.goal = replica.group.last_index
                case Report():
                    await self._report(key, replica, info)
                case Wait():
                    pass
                case _:
                    assert_never(step)
        except (RaftlogError, TimeoutError) as error:
            now = self._host.clock.monotonic()
            if now - move.complained_at > SAY_AGAIN_S:
                move.complained_at = now
                _log.warning(
                    "%s/%s: step %s of the move failed, will retry: %s", *key, type(step).__name__, error
                )
        finally:
            move.step = None

    async def _ask_prepared(
        self, key: Key, info: PartitionInfo, nodes: frozenset[NodeId], *, is_added: bool = False
    ) -> dict[NodeId, rpc.PreparedAnswer]:
        """Ask brokers whether they have the replica open.

        The calls use the links that carry Raft messages.
        """
        head = encode_body(rpc.Prepared((TopicPartition(*key), info.group_id), info.version, is_added))

        async def ask(node: NodeId) -> rpc.PreparedAnswer:
            try:
                answer, _ = await self._host.calls.call(node, rpc.PREPARED, head, timeout_ms=ASK_TIMEOUT_MS)
            except RaftlogError:
                return _SILENT
            return decode_body(answer, rpc.PreparedAnswer)

        order = sorted(nodes)
        return dict(zip(order, await asyncio.gather(*map(ask, order)), strict=True))

    async def _is_current(self, key: Key, info: PartitionInfo, move: _Move) -> bool:
        """Whether confirmed metadata still has the move's target, and this broker still leads in the move's
        term.

        A broker that was disconnected may know only an older target, while another leader has reached a later
        target. That leader's term is above this leader's term. Raises ``NoLeader``.
        """
        await self._metadata.current_image(CONFIRM_TIMEOUT_MS)
        replica = self._replicas.get(key)
        is_leading = replica is not None and (replica.group.term, info.version) == move.epoch
        return is_leading and self._info(key) == info

    async def _can_commit(
        self,
        key: Key,
        info: PartitionInfo,
        replica: PartitionReplica,
        move: _Move,
        membership: Membership,
    ) -> bool:
        """Whether a majority of the new voters answers and counts in quorums: without it no change can
        commit.
        """
        before, me = replica.group.membership.voters, self._host.node_id
        if membership.voters == before:
            return True
        answers = await self._ask_prepared(key, info, membership.voters - {me})
        move.closed = frozenset(node for node, answer in answers.items() if not answer.is_open)
        able = {node for node, answer in answers.items() if answer.is_open and not answer.is_rejoining}
        return can_commit(membership, {me, *able})

    async def _report(self, key: Key, replica: PartitionReplica, info: PartitionInfo) -> None:
        status = replica.group.status()
        topic = self._metadata.image.topics.get(key[0])
        if topic is None:
            return  # the topic was deleted during the move
        await self._metadata.change_replicas(
            ReplicasChanged(
                key[0],
                topic.topic_id,
                key[1],
                info.group_id,
                tuple(sorted(status.membership.voters)),
                status.membership_index,
                info.version,
            ),
            REPORT_TIMEOUT_MS,
        )

    async def _report_stuck(self, key: Key, info: PartitionInfo, nodes: frozenset[NodeId]) -> None:
        """Report live brokers that have not opened the replica. A broker with an open learner is only slow.

        A broker that is down may return, and is not reported: ``restore_after_ms`` decides about it.
        """
        answers = await self._ask_prepared(key, info, nodes)
        image = self._metadata.image
        topic = image.topics.get(key[0])
        for node, answer in answers.items():
            broker = image.brokers.get(node)
            if topic is None or broker is None or not broker.alive or answer.is_open:
                continue
            reason = answer.reason[:REASON_CHARS_MAX]
            _log.warning("%s/%s: broker %s does not open its new replica: %s", *key, node, reason)
            report = MoveStuck(key[0], topic.topic_id, key[1], info.version, node, reason)
            await self._metadata.report_stuck(report, REPORT_TIMEOUT_MS)

    def _info(self, key: Key) -> PartitionInfo | None:
        topic = self._metadata.image.topics.get(key[0])
        return topic.partitions[key[1]] if topic is not None and key[1] < len(topic.partitions) else None

    def _forget(self, key: Key) -> None:
        move = self._moves.pop(key, None)
        if move is not None and move.step is not None:
            move.step.cancel()


def _moving(topics: Mapping[str, TopicInfo]) -> Iterator[Key]:
    for topic in topics.values():
        for partition in topic.partitions:
            if partition.target:
                yield topic.name, partition.partition


def _view(replica: PartitionReplica, info: PartitionInfo, move: _Move, now_s: float) -> View:
    status = replica.group.status()
    matches = status.learner_match_index
    progress = {
        node: matches.get(node)
        for node in info.target
        if node not in status.membership.voters
        and (node not in matches or matches[node] < move.goal or node in move.closed)
    }
    stuck = move.patience.stuck(now_s, progress)
    return View(
        target=frozenset(info.target),
        membership=status.membership,
        is_committed=status.commit_index >= status.membership_index,
        has_committed=replica.group.has_committed,
        prepared=frozenset(move.prepared),
        learner_match=matches,
        goal=move.goal,
        stuck=stuck if now_s - move.reported_at >= SAY_AGAIN_S else frozenset(),
    )


def _words(membership: Membership) -> str:
    learners = f", learners {sorted(membership.learners)}" if membership.learners else ""
    return f"voters {sorted(membership.voters)}{learners}"
