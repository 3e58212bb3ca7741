"""Interfaces through which groups use the cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from raftlog.hosting.known_topics import KnownTopics


@dataclass(frozen=True, slots=True)
class Extent:
    """Readable offsets of a partition: all from ``start`` up to, but not including, ``end``.

    Usually ``start`` is the log start offset and ``end`` the high watermark.
    """

    start: int
    end: int


class Place(NamedTuple):
    """A partition of a topic. A topic that was deleted and created again has another id."""

    topic: str
    topic_id: str
    partition: int


Extents = Mapping[Place, Extent | None]
"""Readable offsets by partition; None if the partition does not exist.

Partitions whose brokers have not answered are missing.
"""


class Topics(Protocol):
    """The topics that groups consume."""

    @property
    def known(self) -> KnownTopics:
        """The topics that this broker knows; the returned object is kept up to date."""

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic; None if the topic does not exist."""

    async def exists(self, topic: str, topic_id: str) -> bool:
        """Whether the topic with this id exists. Raises ``NoLeader`` if this broker cannot find out."""

    async def end(self, topic: str, partition: int) -> int:
        """The high watermark of a partition. Raises ``RaftlogError``."""

    async def extent(self, topic: str, partition: int) -> Extent:
        """The readable offsets of a partition. Raises ``RaftlogError``."""

    async def extents(self, places: Collection[Place]) -> Extents:
        """The readable offsets of these partitions.

        Records in an archive below the log start are readable, too.
        """

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        """Offset and timestamp in milliseconds of the first committed record at or after an offset.

        Without such a record, the result is an offset below which there is no such record, and None. Raises
        ``RaftlogError``.
        """
