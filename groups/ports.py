"""The interfaces through which groups use the cluster. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from raftlog.hosting.known_topics import KnownTopics


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
        """The topics that this broker knows; kept up to date."""

    def topic_id(self, topic: str) -> str | None:
        """None for a topic that does not exist."""

    async def exists(self, topic: str, topic_id: str) -> bool:
        """Whether this very topic exists. Raises ``NoLeader`` when this broker cannot know."""

    async def end(self, topic: str, partition: int) -> int:
        """The high watermark."""

    async def extent(self, topic: str, partition: int) -> Extent:
        """The offsets at which a partition begins and ends. Raises ``RaftlogError``."""

    async def extents(self, places: Collection[Place]) -> Extents:
        """The offsets that can be read of these partitions, in their logs and in an archive below."""

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        """Offset and timestamp in milliseconds of the first committed record at or after an offset. Without
        one: the offset up to which there is none, and None. Raises ``RaftlogError``.
        """
