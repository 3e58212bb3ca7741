"""Interfaces through which groups use the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from raftlog.hosting.known_topics import KnownTopics


@dataclass(frozen=True, slots=True)
class Extent:
    """Readable offsets of a partition, from ``start`` to below ``end``.

    They usually are the log start and the high watermark.
    """

    start: int
    end: int


class Place(NamedTuple):
    """A partition of a topic. A topic that was created again has another id."""

    topic: str
    topic_id: str
    partition: int


Extents = Mapping[Place, Extent | None]
"""Readable offsets by partition; None: no such partition. Partitions without an answer are missing."""


class Topics(Protocol):
    """The topics that groups consume."""

    @property
    def known(self) -> KnownTopics:
        """The topics that this broker knows; kept up to date."""

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic; None if the topic does not exist."""

    async def exists(self, topic: str, topic_id: str) -> bool:
        """Whether the topic of this id exists. Raises ``NoLeader`` if this broker cannot find out."""

    async def end(self, topic: str, partition: int) -> int:
        """The high watermark of a partition. Raises ``RaftlogError``."""

    async def extent(self, topic: str, partition: int) -> Extent:
        """The readable offsets of a partition. Raises ``RaftlogError``."""

    async def extents(self, places: Collection[Place]) -> Extents:
        """The readable offsets of these partitions, including an archive below the log start."""

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        """Offset and timestamp in milliseconds of the first committed record at or after an offset.

        Without such a record: the offset below which there is none, and None. Raises ``RaftlogError``.
        """
