"""The controller without a metadata group: a request is planned and applied in the call."""

from __future__ import annotations

import random
from collections.abc import Callable

from partitions.metadata.balancing import propose
from partitions.metadata.commands import DeleteTopic
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.machine import apply_command
from partitions.metadata.move_planner import find_topic
from partitions.metadata.planner import PlannerLimits, plan
from partitions.metadata.refusals import MoveStuck
from partitions.metadata.requests import Answer, CurrentVersion, ProposePlan, Request
from partitions.metadata.service import Controller
from raftlog.core.membership import Membership
from raftlog.errors import NoLeader, RaftlogError
from raftlog.types import NodeId

PLAN_BYTES_MIN = 1 << 20


class FakeController(Controller):
    """``unheard`` is newer metadata that has not reached this broker. Without ``leader`` requests fail."""

    leader: NodeId | None = None

    def __init__(self, image: MetadataImage, leader: NodeId | None) -> None:
        self.listener: Callable[[MetadataImage], object] = lambda image: None  # gets every image
        self.deleted: Callable[[TopicInfo], None] = lambda topic: None
        self.image = image
        self.leader = leader
        self.unheard: MetadataImage | None = None
        self._rng = random.Random(1)

    @property
    def image(self) -> MetadataImage:
        return self._image

    @image.setter
    def image(self, image: MetadataImage) -> None:
        self._image = image
        self.listener(image)

    @property
    def members(self) -> Membership:
        return Membership(frozenset(self.image.brokers))

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Adopts ``unheard``; without a leader it fails."""
        if self.leader is None:
            raise NoLeader("no controller")
        if self.unheard is not None:
            self.image, self.unheard = self.unheard, None
        return self.image

    async def wait_for_version(self, version: int, timeout_ms: float) -> None:
        """There is one image only."""

    async def _topic_now(self, name: str, timeout_ms: int) -> tuple[TopicInfo, float]:
        return find_topic(self.image, name), timeout_ms

    async def _ask(self, request: Request, timeout_ms: float) -> Answer:
        before = self.image
        if isinstance(request, ProposePlan):
            return Answer(before.version, proposal=propose(before, list(before.brokers), {}, PLAN_BYTES_MIN))
        if isinstance(request, CurrentVersion | MoveStuck):
            return Answer(before.version)
        self.image, reply = apply_command(before, plan(request, before, PlannerLimits()), before.version + 1)
        if isinstance(reply, RaftlogError):
            raise reply
        if isinstance(request, DeleteTopic):
            self.deleted(before.topics[request.name])
        return Answer(
            self.image.version,
            topic=reply if isinstance(reply, TopicInfo) else None,
            ids=(reply.start, reply.stop) if isinstance(reply, range) else (0, 0),
        )
