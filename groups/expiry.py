"""Which groups may be forgotten: nobody uses them, and no record is left behind their offsets. Pure.

Decides: when a committed offset means nothing any more. Leaves to others: how long a group must be unused,
and its deletion (``coordination``); where partitions begin and end (``ports.Topics``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from groups.ports import Extent, Extents, Place
from groups.state import GroupsState
from raftlog.hosting.decisions import Effect


@dataclass(frozen=True, slots=True)
class Survey(Effect):
    """Find out where these partitions begin and end, then report it of these groups."""

    groups: tuple[str, ...]
    places: tuple[Place, ...]


def places_of(state: GroupsState, group: str) -> Iterator[Place]:
    """The partitions whose extents must be known before a group is forgotten."""
    return (place for place, _ in _positions(state, group))


def is_over(state: GroupsState, group: str, extents: Extents) -> bool:
    """Whether no record that can be read is lost to the group, or comes again, without its offsets."""
    return all(
        place in extents and _is_meaningless(offset, extents[place])
        for place, offset in _positions(state, group)
    )


def _is_meaningless(offset: int, extent: Extent | None) -> bool:
    """The record at the offset was deleted. In an empty log every policy begins at the same offset."""
    return extent is None or offset < extent.start or extent.start == extent.end


def _positions(state: GroupsState, group: str) -> Iterator[tuple[Place, int]]:
    for (topic, partition), committed in state.offsets.get(group, {}).items():
        yield Place(topic, committed.topic_id, partition), committed.offset
    for (topic, partition), queue in state.queues.get(group, {}).items():
        yield Place(topic, queue.topic_id, partition), queue.next_offset
