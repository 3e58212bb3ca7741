"""What the groups need of the cluster. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


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
