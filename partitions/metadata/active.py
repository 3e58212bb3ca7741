"""The duties of the active controller: turn requests into commands, and notice silent brokers.

Decides: that requests are planned one after the other, so that each plan sees the previous command.
Leaves to others: the plan (``planner``), which brokers count as alive (``liveness``), which replicas are
restored on other brokers (``healing``), finding the active controller (``service``). Every broker has this
part; it acts only on the leader of the metadata group.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, assert_never

from partitions.metadata import liveness
from partitions.metadata.balancer import Balancer, BalancingSettings, BrokerView
from partitions.metadata.commands import (
    AddPartitions,
    Command,
    CreateTopic,
    ForgetBroker,
    SetClusterId,
    StartPlan,
    command_batch,
)
from partitions.metadata.features import NEWEST
from partitions.metadata.forgetting import check_out_of_use
from partitions.metadata.healing import (
    HealingCounts,
    dead_brokers,
    healing_counts,
    leaving_brokers,
    plan_healing,
)
from partitions.metadata.image import BrokerInfo, MetadataImage, TopicInfo
from partitions.metadata.level_watch import LevelWatch
from partitions.metadata.loads import LoadsHere, collect_loads
from partitions.metadata.machine import MetadataMachine, Reply
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.planner import NewPartitions, NewTopic, PlannerLimits, plan
from partitions.metadata.refusals import MoveStuck, Refusals
from partitions.metadata.requests import Answer, CurrentVersion, ProposePlan, Request
from partitions.metadata.shrink_planner import ShrinkTopic
from partitions.metadata.silence import WatchedSilence
from partitions.metadata.voters import wanted_voters
from raftlog.errors import (
    CommitUnknown,
    Conflict,
    InvalidRequest,
    NoLeader,
    PreconditionFailed,
    RaftlogError,
    TopicNotFound,
)
from raftlog.node.group.pending_requests import Proposal
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.types import NodeId

_log = logging.getLogger("raftlog.controller")

NO_ROOM_MS: Final = 10_000  # after this time without room, or stopping, new replicas go to other brokers
LOOKS_MISSED_MAX: Final = 4  # a longer pause of this process does not count as silence of other brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of a controller. All brokers of a cluster should have equal settings."""

    cluster_id: str
    broker_timeout_ms: int = 3000  # a broker that is silent for longer gets no new replicas
    restore_after_ms: int = 300_000  # replicas of a broker silent for longer are restored on other brokers
    restore_moves_max: int = 10  # partitions that move at a time; 0: none is restored
    duty_interval_ms: int = 250  # between two looks at the silence of brokers
    command_timeout_ms: int = 5000  # for commands of the controller itself
    retry_pause_ms: int = 50  # before the next attempt of a request
    attempt_timeout_ms: int = 3000  # of one attempt of a request that may be repeated
    limits: PlannerLimits = field(default_factory=PlannerLimits)
    balancing: BalancingSettings = field(default_factory=BalancingSettings)
    feature_level: int = NEWEST  # of this broker (``features``)


class ActiveController:
    """The controller part of one broker; active while the broker leads. All on the event loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        group: RaftGroup[Reply],
        machine: MetadataMachine,
        settings: ControllerSettings,
        bootstrap_id: str,
        loads_here: LoadsHere = dict,
    ) -> None:
        self._host = host
        self._group = group
        self._machine = machine
        self._settings = settings
        self._bootstrap_id = bootstrap_id
        self._planning = asyncio.Lock()
        self._silence = WatchedSilence(LOOKS_MISSED_MAX * settings.duty_interval_ms)
        self._without_room = WatchedSilence(LOOKS_MISSED_MAX * settings.duty_interval_ms)  # "heard": has room
        self._refusals = Refusals()
        self._balancer = Balancer(
            settings.balancing, lambda brokers: collect_loads(host, brokers, loads_here)
        )
        self._levels = LevelWatch(host, settings.feature_level)
        self._dead: frozenset[NodeId] = frozenset()
        self._leaving: frozenset[NodeId] = frozenset()  # dead or decommissioned, in the newest plan
        self._nothing_due_in: object = None  # the state for which the newest plan was empty

    @property
    def healing(self) -> HealingCounts:
        """Counts of partitions that move or are to be restored; zeros unless this broker leads."""
        if not self._group.is_ready:
            return HealingCounts()
        image = self._machine.image
        return healing_counts(image, leaving_brokers(image, self._dead_now()))

    def wanted_voters(self) -> frozenset[NodeId] | None:
        """The target voters of the metadata group; None if this broker does not lead the group."""
        image = self._machine.image
        if not self._group.is_ready or not image.bootstrap_id:
            return None
        return wanted_voters(
            image, self._group.membership.voters, self._dead_now(), self._silence.heard, self._lacking_room()
        )

    async def handle(
        self, request: Request | SetClusterId | Command, timeout_ms: float, version: int | None = None
    ) -> Answer:
        """Carry out a request if the metadata has this ``version``; ``None`` allows any version.

        Raises ``PreconditionFailed`` for another version, ``NotLeader``, ``CommitUnknown``, ``NoLeader`` when
        the request did not start in time, and the refusals of ``plan`` and of the machine.
        """
        if isinstance(request, CurrentVersion):
            return await self._current_version(timeout_ms)
        if isinstance(request, MoveStuck):
            return await self._note_stuck(request, timeout_ms)
        if isinstance(request, ProposePlan):
            return await self._propose_plan(timeout_ms)
        proposal: Proposal[Reply] | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000), self._planning:
                await self._group.ready()
                if version not in (None, self._machine.image.version):
                    raise PreconditionFailed("the metadata has changed since; read it and try again")
                command = await self._plan(request)
                batch = command_batch(command, self._host.clock.wall_ms())
                # Metadata may use the reserve of the disk, except for commands that add files.
                frees_room = not isinstance(command, CreateTopic | AddPartitions)
                proposal = self._group.propose([batch], frees_room=frees_room)
                reply = await proposal.outcome
        except TimeoutError:
            if proposal is None:
                raise NoLeader("the controller did not start the request in time; retry") from None
            raise CommitUnknown(
                "the metadata may have changed; the time ran out while replicating", committed=None
            ) from None
        return _answer(reply, self._machine.image)

    async def _current_version(self, timeout_ms: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._group.confirm_read()
        except TimeoutError:
            raise NoLeader("the controller could not confirm in time that it still leads; retry") from None
        return Answer(self._machine.image.version, refused=self._refusals.now(self._now_ms()))

    async def _note_stuck(self, report: MoveStuck, timeout_ms: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._group.ready()
        except TimeoutError:
            raise NoLeader("the controller did not start the request in time; retry") from None
        if self._refusals.note(report, self._now_ms()):
            _log.warning(
                "broker %s does not open a new replica of %s/%s and gets no new replicas for now: %s",
                report.broker_id,
                report.name,
                report.partition,
                report.reason,
            )
        return Answer(self._machine.image.version)

    async def _propose_plan(self, timeout_ms: float) -> Answer:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._group.confirm_read()
                proposal = await self._balancer.propose(self._machine.image, self._view())
        except TimeoutError:
            raise NoLeader("the controller did not make a plan in time; retry") from None
        return Answer(self._machine.image.version, proposal=proposal)

    def _view(self) -> BrokerView:
        image = self._machine.image
        refused = (report.broker_id for report in self._refusals.now(self._now_ms()))
        leaving = leaving_brokers(image, self._dead_now())
        return BrokerView(self._silence.heard, leaving, self._lacking_room().union(refused))

    def _now_ms(self) -> float:
        return self._host.clock.monotonic() * 1000

    async def _plan(
        self, request: NewTopic | NewPartitions | ShrinkTopic | MoveReplicas | Command
    ) -> Command:
        try:
            return self._planned(request)
        except RaftlogError:
            # A deposed controller that has not noticed must not refuse because of old metadata.
            await self._group.confirm_read()
            return self._planned(request)

    def _planned(self, request: NewTopic | NewPartitions | ShrinkTopic | MoveReplicas | Command) -> Command:
        image = self._machine.image
        command = plan(request, image, self._settings.limits, self._group.membership.members)
        if isinstance(command, ForgetBroker):
            check_out_of_use(
                command,
                image,
                voters=self._group.membership.all_voters,
                dead=self._dead_now(),
                is_heard=self._host.is_reachable(command.broker_id),
            )
        return command

    async def run(self) -> None:
        """Do the controller's periodic duties, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.duty_interval_ms / 1000)
            self._note_who_is_heard()
            for command in self._due():
                try:
                    await self.handle(command, self._settings.command_timeout_ms)
                except RaftlogError as error:
                    _log.warning("%s: %s", command, error)
                    break  # the next look finds the commands that are still due
            await self._heal()
            await self._balance()
            await self._raise_feature_level()

    def _note_who_is_heard(self) -> None:
        is_heard = {broker: self._host.is_reachable(broker) for broker in self._machine.image.brokers}
        if self._group.is_leader:
            self._silence.look(self._now_ms(), is_heard)
            has_room = {broker: not self._host.declines(broker) for broker in is_heard}
            self._without_room.look(self._now_ms(), has_room)
        else:
            self._silence.begin_again()
            self._without_room.begin_again()
            self._refusals.begin_again()
            self._balancer.begin_again()

    def _due(self) -> list[Command]:
        if not self._group.is_ready:
            return []
        image = self._machine.image
        if not image.bootstrap_id:
            level = self._settings.feature_level
            return [SetClusterId(self._settings.cluster_id, self._bootstrap_id, level)]
        return [
            *liveness.decide(
                image,
                self._silence.silent_ms,
                self._silence.heard,
                broker_timeout_ms=self._settings.broker_timeout_ms,
            )
        ]

    async def _heal(self) -> None:
        """Begin to move replicas away from leaving brokers.

        Stop if the set of leaving brokers changes meanwhile.
        """
        for move in self._healing_due():
            self._note_who_is_heard()
            if leaving_brokers(self._machine.image, self._dead_now()) != self._leaving:
                return
            try:
                await self.handle(move, self._settings.command_timeout_ms)
            except (Conflict, InvalidRequest, PreconditionFailed, TopicNotFound) as refused:
                _log.info("%s/%s is not moved now: %s", move.name, move.partition, refused)
            except RaftlogError as error:
                _log.warning("%s/%s is not moved yet: %s", move.name, move.partition, error)
                return
            else:
                _log.warning(
                    "%s/%s: %s: %s to %s",
                    move.name,
                    move.partition,
                    "replicas of dead or decommissioned brokers move"
                    if self._leaving.intersection(move.expected or ())
                    else "replaces a broker that does not open its new replica or has no room",
                    list(move.expected or ()),
                    list(move.replicas or ()),
                )

    def _healing_due(self) -> list[MoveReplicas]:
        settings, image, heard = self._settings, self._machine.image, self._silence.heard
        before, self._dead = self._dead, self._dead_now()
        if not self._group.is_ready:
            return []
        for broker in sorted(self._dead - before):
            _log.warning(
                "broker %s has been silent for %s ms: its replicas are restored on other brokers",
                broker,
                settings.restore_after_ms,
            )
        self._leaving = leaving_brokers(image, self._dead)
        without_room = self._lacking_room()
        refused = self._refusals.now(self._now_ms())
        state = (image.version, self._leaving, heard, without_room, refused)
        if state == self._nothing_due_in:
            return []
        moves = plan_healing(
            image,
            self._leaving,
            heard,
            without_room,
            moves_max=settings.restore_moves_max,
            replicas_per_broker_max=settings.limits.replicas_per_broker_max,
            refused=refused,
        )
        self._nothing_due_in = None if moves else state
        return moves

    async def _balance(self) -> None:
        """Continue the plan in the metadata; without a plan, begin one if an automatic plan is due."""
        image, view = self._machine.image, self._view()
        if not self._group.is_ready or not image.bootstrap_id:
            return
        for command in self._balancer.next_of_plan(image, view):
            try:
                await self.handle(command, self._settings.command_timeout_ms)
            except RaftlogError as error:
                _log.info("%s is not carried out now: %s", command, error)
                return
        if not self._balancer.is_plan_due(image, view, self._now_ms()):
            return
        try:
            proposal = await self._balancer.propose(image, view)
            if proposal.moves:
                _log.info("%d partitions are moved, to balance the brokers", len(proposal.moves))
                plan = StartPlan(proposal.moves, proposal.made_at, is_automatic=True)
                await self.handle(plan, self._settings.command_timeout_ms)
        except RaftlogError as error:
            _log.info("the brokers are not balanced now: %s", error)

    async def _raise_feature_level(self) -> None:
        """Raise the cluster's feature level once all brokers support a higher level."""
        if not self._group.is_ready or not self._machine.image.bootstrap_id:
            return
        command = await self._levels.due(self._machine.image, self._silence.heard)
        if command is None:
            return
        try:
            await self.handle(command, self._settings.command_timeout_ms)
        except RaftlogError as error:
            _log.warning("%s: %s", command, error)
        else:
            _log.warning("feature level %d is in force: brokers of older releases cannot join", command.level)

    def _lacking_room(self) -> frozenset[NodeId]:
        """The brokers that have lacked room for replicas, or have been stopping, for ``NO_ROOM_MS``."""
        return frozenset(broker for broker, ms in self._without_room.silent_ms.items() if ms >= NO_ROOM_MS)

    def _dead_now(self) -> frozenset[NodeId]:
        """The dead brokers whose replicas are to be restored on other brokers; empty if restoring is off."""
        settings = self._settings
        if not self._group.is_ready or not settings.restore_moves_max:
            return frozenset()
        return dead_brokers(self._machine.image, self._silence.silent_ms, settings.restore_after_ms)


def _answer(reply: Reply, image: MetadataImage) -> Answer:
    match reply:
        case RaftlogError():
            raise reply
        case TopicInfo():
            return Answer(image.version, topic=reply)
        case range():
            return Answer(image.version, ids=(reply.start, reply.stop))
        case BrokerInfo() | int():
            return Answer(image.version)
        case _:
            assert_never(reply)
