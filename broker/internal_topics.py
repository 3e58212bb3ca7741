"""Creates the internal topics when they are first needed.

Decides: their configuration. Leaves to others: the meaning of their records (``groups``, ``transactions``,
``delayed``).
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.service import Controller
from partitions.routing.gateway import Gateway
from raftlog.errors import CommitUnknown, InvalidRequest, NoLeader, TopicExists
from raftlog.types import NodeId, TopicPartition

CONFIG: Final[dict[str, int | str]] = {
    "cleanup.policy": "compact",
    "segment.bytes": 32 << 20,
    "max.message.bytes": 16 << 20,
}


class CreatedTopic:
    """An internal topic; implements ``raftlog.hosting.coordinator_service.InternalTopic``."""

    def __init__(
        self,
        name: str,
        purpose: str,
        controller: Controller,
        gateway: Gateway,
        *,
        partitions: int,
    ) -> None:
        """``purpose`` appears in error messages; ``partitions`` is the number of partitions if this broker
        creates the topic.
        """
        self.name = name
        self._purpose = purpose
        self._controller = controller
        self._gateway = gateway
        self._partitions = partitions

    @property
    def partition_count(self) -> int | None:
        """The number of partitions of the topic; None until the topic exists."""
        topic = self._controller.image.topics.get(self.name)
        return None if topic is None else len(topic.partitions)

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """Return the topic's number of partitions, confirmed by the controller; None if the topic does not
        exist.
        """
        topic = await self._gateway.topics.topic(self.name, timeout_ms=timeout_ms)
        return None if topic is None else len(topic.partitions)

    async def create(self, timeout_ms: int) -> int:
        """Create the topic, or find that another broker has created it; return its number of partitions."""
        try:
            topic = await self._controller.create_topic(
                self.name,
                partitions=self._partitions,
                config=CONFIG,
                timeout_ms=timeout_ms,
                internal=True,
            )
        except InvalidRequest as refusal:
            raise NoLeader(
                f"the topic {self.name} of {self._purpose} cannot be created yet: {refusal}; retry",
                retry_after_ms=1_000,
            ) from refusal
        except (TopicExists, CommitUnknown):
            found = await self._gateway.topics.topic(self.name, timeout_ms=timeout_ms)
            if found is None:
                raise
            topic = found
        return len(topic.partitions)

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """The brokers to ask about a partition, in this order: its leader as known here, then all its
        replicas.
        """
        topic = self._controller.image.topics.get(self.name)
        if topic is None:
            return ()
        leader = self._gateway.leader_of(TopicPartition(self.name, partition))
        return leader, *topic.partitions[partition].replicas
