"""What the groups need of the cluster. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from raftlog.types import NodeId


class OffsetsTopic(Protocol):
    """The topic ``__offsets``, as this broker knows it."""

    @property
    def partition_count(self) -> int | None:
        """None until the topic exists, and on a broker that does not know it yet."""

    async def confirmed_count(self, timeout_ms: int) -> int | None:
        """None if the topic does not exist; otherwise it is known here. Raises ``NoLeader``."""

    async def create(self, timeout_ms: int) -> int:
        """Create the topic if it is missing; gives its number of partitions. Raises ``RaftlogError``."""

    def candidates(self, partition: int) -> tuple[NodeId | None, ...]:
        """The brokers that may lead a partition, the likeliest first."""


class Topics(Protocol):
    """The topics that groups consume."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Partitions by topic; kept up to date."""

    def topic_id(self, topic: str) -> str | None:
        """None for a topic that does not exist."""

    async def exists(self, topic: str, topic_id: str) -> bool:
        """Whether this very topic exists. Raises ``NoLeader`` when this broker cannot know."""

    async def end(self, topic: str, partition: int) -> int:
        """The high watermark."""

    async def time_of(self, topic: str, partition: int, offset: int) -> int | None:
        """The timestamp in milliseconds of the first record at or after an offset; None without one."""
