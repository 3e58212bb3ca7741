"""What the groups need of the cluster. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from groups.queue_effects import Bury, Look, Looked


@dataclass(slots=True)
class KnownTopics:
    """What this broker knows of the topics now. Its owner keeps it up to date; nobody else changes it."""

    counts: Mapping[str, int]
    """Partitions by topic."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By topic; without a topic where its id makes no difference."""
    beginnings: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """By topic id and partition: offsets below are those of a partition of this number that was removed.
    Only where there was one."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a partition that can be read, as a rule from the log start to the high watermark,
    excluded.
    """

    start: int
    end: int


class Place(NamedTuple):
    """A partition of a topic. A topic that was created again has another id."""

    topic: str
    topic_id: str
    partition: int


Extents = Mapping[Place, Extent | None]
"""What is known of partitions: None for a partition that does not exist. Others could not be asked."""


class Topics(Protocol):
    """The topics that groups consume."""

    @property
    def known(self) -> KnownTopics:
        """What this broker knows of them; kept up to date."""

    def topic_id(self, topic: str) -> str | None:
        """None for a topic that does not exist."""

    async def exists(self, topic: str, topic_id: str) -> bool:
        """Whether this very topic exists. Raises ``NoLeader`` when this broker cannot know."""

    async def end(self, topic: str, partition: int) -> int:
        """The high watermark."""

    async def extent(self, topic: str, partition: int) -> Extent:
        """Where a partition begins and ends. Raises ``RaftlogError``."""

    async def extents(self, places: Collection[Place]) -> Extents:
        """The offsets that can be read of these partitions, in their logs and in an archive below."""

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        """Offset and timestamp in milliseconds of the first committed record at or after an offset. Without
        one: the offset up to which there is none, and None. Raises ``RaftlogError``.
        """


class Jobs(Protocol):
    """The records that groups work off as queues, and where those go that are given up."""

    async def look(self, look: Look) -> Looked:
        """The next jobs of a partition. Raises ``RaftlogError``."""

    async def bury(self, bury: Bury) -> None:
        """Store one in the dead-letter topic of its group; nothing if its record or topic is gone.

        Raises ``RaftlogError``, and then is tried again.
        """
