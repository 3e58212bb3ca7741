"""Metadata in memory: the controller for tests of the HTTP side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from partitions.metadata import partition_commands
from partitions.metadata.balancing import PlanProposal, propose
from partitions.metadata.commands import (
    AdmitBroker,
    DecommissionBroker,
    DrainBroker,
    EndPlan,
    ForgetBroker,
    StartPlan,
)
from partitions.metadata.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.machine import apply_command
from partitions.metadata.planner import PlannerLimits, plan
from partitions.metadata.refusals import Refused
from partitions.metadata.shrink_planner import ShrinkTopic, plan_shrink
from partitions.metadata.topic_config import check
from raftlog.core.membership import Membership
from raftlog.errors import (
    InvalidRequest,
    NoLeader,
    PreconditionFailed,
    RaftlogError,
    TopicExists,
    UnknownTopic,
)
from raftlog.types import GroupId, NodeId, ProducerId, TopicId


class FakeController:
    """Metadata without a metadata group."""

    def __init__(self, image: MetadataImage, leader: NodeId | None) -> None:
        self.listener: Callable[[MetadataImage], object] = lambda image: None  # is told of every image
        self.image = image
        self.leader = leader
        self.unheard: MetadataImage | None = None  # newer metadata that has not reached this broker
        self.deleted: Callable[[TopicInfo], None] = lambda topic: None

    @property
    def image(self) -> MetadataImage:
        return self._image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        self._image = image
        self.listener(image)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        config: Mapping[str, int | str],
        timeout_ms: int,
    ) -> TopicInfo:
        """Like the real one, with replicas on the first brokers."""
        if name in self.image.topics:
            raise TopicExists(f"the topic {name} exists", topic=name)
        if replication_factor % 2 == 0 or replication_factor > len(self.image.brokers):
            raise InvalidRequest("replication_factor: send 1 or 3", field="replication_factor")
        checked = check(config, replication_factor=replication_factor)
        version = self.image.version + 1
        replicas = tuple(sorted(self.image.brokers)[:replication_factor])
        infos = [
            PartitionInfo(
                partition=number,
                group_id=GroupId(self.image.next_group_id + number),
                replicas=replicas[number % len(replicas) :] + replicas[: number % len(replicas)],
            )
            for number in range(partitions)
        ]
        topic = TopicInfo(
            name=name,
            topic_id=TopicId(f"{version:032x}"),
            replication_factor=replication_factor,
            partitions=tuple(infos),
            config={key: value for key, value in checked.items() if value is not None},
            version=version,
        )
        self._put(topic, version)
        self.image = replace(self.image, next_group_id=GroupId(self.image.next_group_id + partitions))
        return topic

    async def change_broker(
        self, request: DrainBroker | DecommissionBroker | ForgetBroker, timeout_ms: int
    ) -> MetadataImage:
        checked = plan(request, self.image, PlannerLimits())
        self.image, _ = apply_command(self.image, checked, self.image.version + 1)
        return self.image

    async def propose_plan(self, timeout_ms: int) -> PlanProposal:
        return propose(self.image, list(self.image.brokers), {}, 1 << 20)

    async def change_plan(self, request: StartPlan | EndPlan, timeout_ms: int) -> MetadataImage:
        checked = plan(request, self.image, PlannerLimits())
        self.image, reply = apply_command(self.image, checked, self.image.version + 1)
        if isinstance(reply, RaftlogError):
            raise reply
        return self.image

    @property
    def members(self) -> Membership:
        return Membership(frozenset(self.image.brokers))

    async def admit_broker(self, request: AdmitBroker, timeout_ms: int) -> BrokerInfo:
        checked = plan(request, self.image, PlannerLimits())
        self.image, reply = apply_command(self.image, checked, self.image.version + 1)
        assert isinstance(reply, BrokerInfo)
        return reply

    async def delete_topic(self, name: str, *, expected_version: int | None, timeout_ms: int) -> int:
        topic = self._expect(name, expected_version)
        topics = {other: info for other, info in self.image.topics.items() if other != name}
        self.image = replace(self.image, topics=topics, version=self.image.version + 1)
        self.deleted(topic)
        return self.image.version

    async def alter_config(
        self,
        name: str,
        changes: Mapping[str, int | str | None],
        *,
        expected_version: int | None,
        timeout_ms: int,
    ) -> TopicInfo:
        topic = self._expect(name, expected_version)
        changed = check(changes, replication_factor=topic.replication_factor)
        merged = {**topic.config, **changed}
        version = self.image.version + 1
        topic = replace(
            topic,
            config={key: value for key, value in merged.items() if value is not None},
            version=version,
        )
        self._put(topic, version)
        return topic

    async def add_partitions(
        self, name: str, count: int, *, expected: int | None, expected_version: int | None, timeout_ms: int
    ) -> TopicInfo:
        topic = self._expect(name, None)
        before = len(topic.partitions) if expected is None else expected
        if len(topic.partitions) == before + count:
            return topic
        if len(topic.partitions) != before:
            raise PreconditionFailed(f"{name} has {len(topic.partitions)} partitions, not {before}")
        self._expect(name, expected_version)
        replicas, first = topic.partitions[0].replicas, self.image.next_group_id
        new = [
            PartitionInfo(partition=before + number, group_id=GroupId(first + number), replicas=replicas)
            for number in range(count)
        ]
        version = self.image.version + 1
        topic = replace(topic, partitions=(*topic.partitions, *new), version=version)
        self._put(topic, version)
        self.image = replace(self.image, next_group_id=GroupId(first + count))
        return topic

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
        topic = self._expect(name, expected_version)
        request = ShrinkTopic(
            name,
            topic.topic_id,
            topic.writable_partitions if expected is None else expected,
            topic.shape_version,
            tuple(partitions),
            count,
            is_ended,
        )
        command = plan_shrink(request, self.image)
        self.image, reply = partition_commands.decommission(
            self.image, topic, command, self.image.version + 1
        )
        if isinstance(reply, RaftlogError):
            raise reply
        return reply

    async def allocate_producer_ids(self, count: int, timeout_ms: int) -> range:
        first = self.image.next_producer_id
        self.image = replace(self.image, next_producer_id=ProducerId(first + count))
        return range(first, first + count)

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Adopts ``unheard``; without a leader it fails."""
        if self.leader is None:
            raise NoLeader("no controller")
        if self.unheard is not None:
            self.image, self.unheard = self.unheard, None
        return self.image

    async def refused(self, timeout_ms: int) -> Refused:
        """Every broker opens its replicas."""
        return ()

    async def wait_for_version(self, version: int, timeout_ms: int) -> None:
        """There is one image only."""

    def _expect(self, name: str, version: int | None) -> TopicInfo:
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name}", topic=name)
        if version is not None and version != topic.version:
            raise PreconditionFailed(f"{name} is at version {topic.version}, not {version}")
        return topic

    def _put(self, topic: TopicInfo, version: int) -> None:
        topics = {**self.image.topics, topic.name: topic}
        self.image = replace(self.image, topics=topics, version=version)
