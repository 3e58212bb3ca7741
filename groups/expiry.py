"""Decides which unused groups expire: groups whose committed offsets all point at no readable record. Pure.

Leaves to others: how long a group must be unused, and its deletion (``coordination``); the readable offsets
of partitions (``ports.Topics``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from groups.ports import Extent, Extents, Place
from groups.state import GroupsState
from raftlog.hosting.decisions import Effect


@dataclass(frozen=True, slots=True)
class Survey(Effect):
    """Find out the readable offsets of these partitions, then report them together with the groups' names."""

    groups: tuple[str, ...]
    places: tuple[Place, ...]


def places_of(state: GroupsState, group: str) -> Iterator[Place]:
    """The partitions whose readable offsets must be known before a group expires."""
    return (place for place, _ in _positions(state, group))


def is_over(state: GroupsState, group: str, extents: Extents) -> bool:
    """Whether the group's offsets may be deleted without skipping or repeating a readable record."""
    return all(
        place in extents and _is_meaningless(offset, extents[place])
        for place, offset in _positions(state, group)
    )


def _is_meaningless(offset: int, extent: Extent | None) -> bool:
    """Whether the offset selects nothing: its record was deleted, or the log is empty.

    In an empty log all policies for a missing offset begin at the end.
    """
    return extent is None or offset < extent.start or extent.start == extent.end


def _positions(state: GroupsState, group: str) -> Iterator[tuple[Place, int]]:
    for (topic, partition), committed in state.offsets.get(group, {}).items():
        yield Place(topic, committed.topic_id, partition), committed.offset
    for (topic, partition), queue in state.queues.get(group, {}).items():
        yield Place(topic, queue.topic_id, partition), queue.next_offset
