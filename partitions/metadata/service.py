"""The controller as any part of any broker calls it.

Decides: which broker gets a request, when the request is tried again, and when it is answered: once the
metadata of this broker has the request's effect. Leaves to others: carrying out the request (``active``), and
which broker leads (Raft).

A repeatable request (a second execution changes nothing, however late) is tried until its time limit. Any
other request is tried again only while it definitely has not happened; after that its caller gets
``CommitUnknown`` and reads the metadata. A refusal that follows an attempt with unknown outcome is itself
uncertain. A request about a topic names the topic id, so it cannot affect a later topic with an equal name.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from partitions.metadata import topic_config
from partitions.metadata.active import ActiveController, ControllerSettings
from partitions.metadata.admission import admitted
from partitions.metadata.balancing import PlanProposal
from partitions.metadata.commands import (
    AdmitBroker,
    AllocateProducerIds,
    AlterTopicConfig,
    DecommissionBroker,
    DeleteTopic,
    DrainBroker,
    EndPlan,
    ForgetBroker,
    RecoveredUnsafely,
    RegisterBroker,
    RemovePartition,
    ReplicasChanged,
    StartPlan,
)
from partitions.metadata.healing import HealingCounts
from partitions.metadata.image import BrokerInfo, MetadataImage, TopicInfo
from partitions.metadata.level_watch import FEATURES
from partitions.metadata.loads import LoadsHere
from partitions.metadata.machine import MetadataMachine, Reply
from partitions.metadata.move_planner import MoveReplicas, find_topic
from partitions.metadata.names import check_name
from partitions.metadata.newer_image import NewerImage
from partitions.metadata.planner import Absolute, NewPartitions, NewTopic, is_done
from partitions.metadata.refusals import MoveStuck, Refused
from partitions.metadata.registration import Registration
from partitions.metadata.requests import (
    SERVICE,
    Answer,
    CurrentVersion,
    ProposePlan,
    Question,
    Request,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
)
from partitions.metadata.shown_image import Listener, ShownImage
from partitions.metadata.shrink_planner import ShrinkTopic
from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import Role
from raftlog.errors import (
    CommitUnknown,
    Conflict,
    NoLeader,
    NotLeader,
    Rejected,
    TopicNotFound,
)
from raftlog.hosting.coordinator_service import PeerCalls
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.node.leader_search import InDoubt, LeaderNotFound, LeaderSearch
from raftlog.node.rpc import encode_body
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import LogStorage
from raftlog.types import METADATA_GROUP, Index, NodeId, Term
from raftlog.wire.bodies import SettingValue
from raftlog.wire.limits import REPLICAS_MAX

_log = logging.getLogger("raftlog.controller")
_REPEATABLE: Final = (
    NewTopic,
    NewPartitions,
    ShrinkTopic,
    RemovePartition,
    DeleteTopic,
    AllocateProducerIds,
    AdmitBroker,
    ForgetBroker,
    RegisterBroker,
    ReplicasChanged,
    MoveStuck,
    ProposePlan,
    CurrentVersion,
)
"""Requests that are harmless if carried out twice: a late second execution undoes no other change."""

AboutTopic = DeleteTopic | AlterTopicConfig | MoveReplicas


class Controller:
    """One broker's access to the metadata; listens to the metadata group. All on the event loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        first_members: Membership,
        registration: RegisterBroker,
        settings: ControllerSettings,
        rng: random.Random,
    ) -> None:
        """``first_members`` is the first membership of a new cluster; empty for a broker that joins later."""
        self._host = host
        self._first_members = first_members
        self._shown = ShownImage()
        self.registration = Registration(host, self._shown, registration, settings)
        self._settings = settings
        self.loads_here: LoadsHere = dict  # of the partitions that this broker leads
        self.calls: PeerCalls = host.calls  # or a relay, set before ``offer``
        self._newer = NewerImage(host, self._shown)
        self._rng = rng
        self._tasks: list[asyncio.Task[None]] = []
        self._active: ActiveController | None = None
        self._group: RaftGroup[Reply] | None = None

    @property
    def node_id(self) -> NodeId:
        """The id of this broker."""
        return self._host.node_id

    @property
    def image(self) -> MetadataImage:
        """The newest metadata of this broker. Its version never falls, even while the log is replayed."""
        return self._shown.image

    @property
    def leader(self) -> NodeId | None:
        """The active controller, or None while it is unknown."""
        return None if self._group is None else self._group.leader

    @property
    def leader_known(self) -> str:
        """A sentence that names the leader of the metadata group and the members that are silent."""
        if why := self.registration.why_removed:
            return why
        if self._group is not None and not self._group.membership.members:
            mine = self.registration.wanted
            return (
                "no broker of the cluster has sent metadata yet; the brokers must reach this broker at "
                f"{mine.rpc_host}:{mine.rpc_port}"
            )
        return self._host.leader_known(METADATA_GROUP)

    @property
    def members(self) -> Membership:
        """The members of the metadata group, according to the log of this broker."""
        return NOBODY if self._group is None else self._group.membership

    @property
    def healing(self) -> HealingCounts:
        """Counts of partitions that move or are to be restored; zeros unless this broker is the active
        controller.
        """
        return HealingCounts() if self._active is None else self._active.healing

    def wanted_voters(self) -> frozenset[NodeId] | None:
        """The target voters of the metadata group; None unless this broker is the active controller."""
        return None if self._active is None else self._active.wanted_voters()

    def offer(self) -> None:
        """Answer calls of other brokers from now on; before ``start`` the answer is ``NotLeader``."""
        self.calls.serve(SERVICE, self._serve)
        self._host.calls.serve(FEATURES, self._serve_features)

    def start(self, log: LogStorage) -> None:
        """Open this broker's replica of the metadata group and register the broker.

        Raises ``LogCorrupt`` when a committed entry of the log cannot be applied.
        """
        assert not self._tasks, "the replica is open already; call ``leave`` first"
        machine = MetadataMachine()
        machine.subscribe(self._shown.changed)
        self._group = group = self._host.open_group(
            METADATA_GROUP, log, machine, self._first_members, self, announces_commits=True
        )
        self._active = active = ActiveController(
            self._host, group, machine, self._settings, self._new_id(), lambda: self.loads_here()
        )
        begin = self._host.begin_duty
        self._tasks = [
            begin(active.run),
            begin(self.registration.keep, self.current_image, self._ask),
        ]

    async def leave(self) -> None:
        """End the controller's tasks before its group is closed. ``start`` may be called again later."""
        await self._end_duties()

    async def stop(self) -> None:
        """End the controller's tasks and fail all waits for metadata; the host closes the group."""
        await self._end_duties()
        self._shown.close()

    async def _end_duties(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Public operations.

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, SettingValue],
        timeout_ms: int,
        internal: bool = False,
    ) -> TopicInfo:
        """Create a topic and return it once the metadata of this broker has it.

        Without ``replication_factor`` the number of brokers decides. Raises ``InvalidRequest``, which names
        the field, ``TopicExists``, ``NoLeader``, ``CommitUnknown``.
        """
        check_name(name, internal=internal)
        checked = topic_config.check(config, replication_factor=REPLICAS_MAX)
        plain = {key: value for key, value in checked.items() if value is not None}
        request = NewTopic(name, self._new_id(), partitions, replication_factor, plain, internal=internal)
        return _topic(await self._ask(request, timeout_ms), name)

    async def delete_topic(self, name: str, *, expected_version: int | None, timeout_ms: int) -> int:
        """Delete a topic and return the first metadata version without it.

        Raises ``TopicNotFound``, ``PreconditionFailed``, ``NoLeader``, ``CommitUnknown``.
        """
        return (await self._ask_about(DeleteTopic(name, expected_version), timeout_ms)).version

    async def alter_config(
        self,
        name: str,
        changes: Mapping[str, SettingValue | None],
        *,
        expected_version: int | None,
        timeout_ms: int,
    ) -> TopicInfo:
        """Change settings of a topic; ``None`` resets a setting to its default.

        Raises as ``create_topic``, and ``PreconditionFailed``.
        """
        checked = topic_config.check(changes, replication_factor=REPLICAS_MAX)
        request = AlterTopicConfig(name, checked, expected_version)
        return _topic(await self._ask_about(request, timeout_ms), name)

    async def add_partitions(
        self, name: str, count: int, *, expected: int | None, expected_version: int | None, timeout_ms: int
    ) -> TopicInfo:
        """Add ``count`` partitions to a topic that has ``expected`` partitions (by default the current
        number).

        A repeated request adds no partitions. Raises as ``create_topic``, ``TopicNotFound``, and
        ``PreconditionFailed`` for a topic with neither ``expected`` nor ``expected + count`` partitions.
        """
        topic, left_ms = await self._topic_now(name, timeout_ms)
        before = len(topic.partitions) if expected is None else expected
        shape = topic.shape_version if before == len(topic.partitions) else None
        request = NewPartitions(name, topic.topic_id, before, count, expected_version, shape)
        return _topic(await self._ask(request, left_ms), name)

    async def decommission_partitions(
        self,
        name: str,
        *,
        partitions: Sequence[int] = (),
        count: int = 0,
        expected: int | None = None,
        is_ended: bool = False,
        expected_version: int | None = None,
        timeout_ms: int,
    ) -> TopicInfo:
        """Decommission ``partitions``, or the last ``count`` of ``expected`` partitions: they refuse new
        records.

        With ``is_ended`` the partitions (by default all) accept records again. A repeated request changes
        nothing. Raises as ``add_partitions``, and ``PartitionNotFound``, ``Conflict``.
        """
        topic, left_ms = await self._topic_now(name, timeout_ms)
        before = topic.writable_partitions if expected is None else expected
        request = ShrinkTopic(
            name,
            topic.topic_id,
            before,
            topic.shape_version,
            tuple(partitions),
            count,
            is_ended,
            expected_version,
        )
        return _topic(await self._ask(request, left_ms), name)

    async def remove_partition(self, request: RemovePartition, timeout_ms: int) -> TopicInfo:
        """Remove a decommissioned partition that has no record left, and return the topic.

        Raises ``PreconditionFailed``, ``TopicNotFound``, ``NoLeader``, ``CommitUnknown``.
        """
        return _topic(await self._ask(request, timeout_ms), request.name)

    async def allocate_producer_ids(self, count: int, timeout_ms: int) -> range:
        """Allocate ``count`` unused numbers of producers.

        ``ProducerIdCipher`` converts them to producer ids.
        """
        return range(*(await self._ask(AllocateProducerIds(count), timeout_ms)).ids)

    async def change_broker(
        self, request: DrainBroker | DecommissionBroker | ForgetBroker, timeout_ms: int
    ) -> MetadataImage:
        """Drain, decommission or remove a broker, and return the metadata after the change.

        Raises ``BrokerNotFound``, ``InvalidRequest``, ``Conflict``, ``NoLeader``, ``CommitUnknown``.
        """
        await self._ask(request, timeout_ms)
        return self.image

    async def admit_broker(self, request: AdmitBroker, timeout_ms: int) -> BrokerInfo:
        """Let a broker join, and return its metadata. A repeated request admits no second broker.

        Raises ``InvalidRequest``, ``Conflict``, ``NoLeader``, ``CommitUnknown``.
        """
        await self._ask(request, timeout_ms)
        broker = admitted(self.image, request.admission_id)
        if broker is None:
            raise Conflict(
                f"another broker was admitted with the id {request.broker_id}; join with another id",
                broker_id=request.broker_id,
            )
        return broker

    async def change_replicas(
        self, request: MoveReplicas | ReplicasChanged | RecoveredUnsafely, timeout_ms: int
    ) -> TopicInfo:
        """Store a new target, a leader's report or an unsafe recovery of a partition, and return the topic.

        Raises ``InvalidRequest``, ``Conflict``, ``PreconditionFailed``, ``TopicNotFound``, ``NoLeader``,
        ``CommitUnknown``.
        """
        if isinstance(request, MoveReplicas):
            return _topic(await self._ask_about(request, timeout_ms), request.name)
        return _topic(await self._ask(request, timeout_ms), request.name)

    async def report_stuck(self, report: MoveStuck, timeout_ms: int) -> None:
        """Report a broker that does not open a new replica. Raises ``NoLeader``, ``CommitUnknown``."""
        await self._ask(report, timeout_ms)

    async def refused(self, timeout_ms: int) -> Refused:
        """Reports about brokers that do not open new replicas, as the active controller has them.

        Raises ``NoLeader``.
        """
        return (await self._current(timeout_ms)).refused

    async def propose_plan(self, timeout_ms: int) -> PlanProposal:
        """Plan moves that balance the brokers; the plan does not begin. Raises ``Conflict``, ``NoLeader``."""
        proposal = (await self._ask(ProposePlan(), timeout_ms)).proposal
        assert proposal is not None
        return proposal

    async def change_plan(self, request: StartPlan | EndPlan, timeout_ms: int) -> MetadataImage:
        """Begin or end a plan, and return the metadata after the change. Moves under way continue.

        Raises ``PreconditionFailed``, ``Conflict``, ``InvalidRequest``, ``NoLeader``, ``CommitUnknown``.
        """
        await self._ask(request, timeout_ms)
        return self.image

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Metadata with all changes acknowledged by any broker before this call. Raises ``NoLeader``."""
        await self._current(timeout_ms)
        return self.image

    async def _current(self, timeout_ms: int) -> Answer:
        try:
            return await self._ask(CurrentVersion(), timeout_ms)
        except CommitUnknown as late:  # asking changes nothing
            raise NoLeader("the active controller did not answer in time; retry") from late

    async def wait_for_version(self, version: int, timeout_ms: float) -> None:
        """Return once ``image`` has at least this version. Raises ``NoLeader`` after ``timeout_ms``."""
        await self._shown.wait_for(version, timeout_ms)

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with every new image."""
        self._shown.subscribe(listener)

    # Callbacks of the Raft group.

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        """Check the registration again, because it may have waited for a leader."""
        self.registration.look_again()

    def commit_advanced(self, commit_index: Index) -> None:
        """Do nothing: the machine has already shown the new image."""

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        """Do nothing: ``members`` reads the newest membership."""

    def removed(self) -> None:
        """Do nothing: this broker keeps its copy of the metadata."""

    def replica_stopped(self, error: BaseException) -> None:
        """Do nothing: the supervisor repairs the replica; until then the shown image stays."""

    # Finding the active controller.

    async def _ask_about(self, request: AboutTopic, timeout_ms: int) -> Answer:
        """Send a request about the topic that has the name now.

        A later topic with that name stays unchanged.
        """
        topic, left_ms = await self._topic_now(request.name, timeout_ms)
        return await self._ask(structs.replace(request, topic_id=topic.topic_id), left_ms)

    async def _topic_now(self, name: str, timeout_ms: int) -> tuple[TopicInfo, float]:
        """The topic in confirmed metadata, and the remaining time in milliseconds."""
        began = self._host.clock.monotonic()
        topic = find_topic(await self.current_image(timeout_ms), name)
        return topic, timeout_ms - (self._host.clock.monotonic() - began) * 1000

    async def _ask(self, request: Request, timeout_ms: float) -> Answer:
        """Send a request to the active controller and return its answer.

        After an attempt with unknown outcome, a repeatable request is always sent again; any other request
        only on the condition that no metadata has changed since the first attempt.
        """
        deadline = deadline_in(timeout_ms)
        is_repeatable = isinstance(request, _REPEATABLE)
        first_version, version = self.image.version, None

        def may_repeat() -> bool:
            nonlocal version
            version = None if is_repeatable else first_version
            return True

        async def ask(node: NodeId) -> Answer:
            left_ms = ms_until(deadline)
            attempt_ms = min(left_ms, self._settings.attempt_timeout_ms) if is_repeatable else left_ms
            answer = await self._ask_broker(node, Question(attempt_ms, request, version))
            return await self._once_known_here(answer, ms_until(deadline))

        pause_s = self._settings.retry_pause_ms / 1000
        search = LeaderSearch(deadline, patience_s=timeout_ms / 1000, pause_s=pause_s)
        try:
            return await search.ask(self._may_lead, ask, is_repeatable=may_repeat)
        except LeaderNotFound:
            raise NoLeader(
                self.registration.why_removed
                or f"no active controller was found in time: {self.leader_known}; retry",
                retry_after_ms=500,  # a client continues with another broker
            ) from None
        except InDoubt as failure:
            if isinstance(failure.last, Rejected) and (
                found := await self._done(request, ms_until(deadline))
            ):
                return found
            raise CommitUnknown(
                f"the metadata may have changed: {failure.last}; read it before trying again", committed=None
            ) from failure.last

    @property
    def _is_cut_off(self) -> bool:
        """Whether this broker's metadata log gets no entries, though another broker may reach the leader."""
        leader = self.leader
        if leader is None:
            return True
        is_heard = self._host.is_reachable(leader) and self._host.is_linked(leader)
        return leader != self._host.node_id and not is_heard

    async def _done(self, request: Request, timeout_ms: float) -> Answer | None:
        """The answer to a request whose repetition was refused, if the metadata already has its result."""
        if not isinstance(request, Absolute):
            return None
        try:
            image = await self.current_image(round(timeout_ms))
        except NoLeader:
            return None
        topic = image.topics.get(getattr(request, "name", ""))
        return Answer(image.version, topic) if is_done(request, image) else None

    async def _ask_broker(self, target: NodeId, question: Question) -> Answer:
        if target == self._host.node_id:
            assert self._active is not None
            return await self._active.handle(question.request, question.timeout_ms, question.version)
        head, timeout_ms = encode_question(question), question.timeout_ms
        answer, _ = await self.calls.call(target, SERVICE, head, timeout_ms=timeout_ms + 1)
        return decode_answer(answer)

    def _may_lead(self) -> Sequence[NodeId | None]:
        """The brokers to send a request to: the leader, or while it is unknown all reachable voters.

        While only this broker's link to the leader is broken, another voter may be the leader.
        """
        if self.leader is not None:
            return (self.leader,)
        return sorted(self.members.voters & self._host.reachable_peers)

    async def _once_known_here(self, answer: Answer, timeout_ms: float) -> Answer:
        try:
            if answer.version > self.image.version and self._is_cut_off:
                await self._newer.fetch(answer.version, timeout_ms)
            await self.wait_for_version(answer.version, max(timeout_ms, 0.0))
        except NoLeader as late:
            raise CommitUnknown(f"the metadata was changed, but {late}", committed=True) from None
        return answer

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        asked = decode_question(head)
        if self._active is None:
            raise NotLeader("this broker does not take part in the metadata group yet", leader=None)
        return encode_answer(await self._active.handle(asked.request, asked.timeout_ms, asked.version)), ()

    async def _serve_features(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        return encode_body(self._settings.feature_level), ()

    def _new_id(self) -> str:
        """Make a version 4 UUID of 32 hexadecimal digits."""
        bits = self._rng.getrandbits(128)
        bits = bits & ~(0xF << 76) | (4 << 76)
        return f"{bits & ~(3 << 62) | (2 << 62):032x}"


def _topic(answer: Answer, name: str) -> TopicInfo:
    if answer.topic is None:
        raise TopicNotFound(f"there is no topic {name!r}", topic=name)
    return answer.topic
