"""Effects of the decisions about delayed messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from delayed.records import Lane, LaneKey
from raftlog.hosting.decisions import Effect
from raftlog.records.batch import EPOCH_MAX

BytesMax = Callable[[str], int]
"""Function that returns the maximum size in bytes of a batch that a topic accepts now."""


@dataclass(frozen=True, slots=True)
class Move(Effect):
    """Append these messages to their target as one batch, then report the outcome."""

    lane: LaneKey
    batch: Lane
    producer_id: int

    @property
    def is_last_epoch(self) -> bool:
        """Whether the lane's next producer epoch needs another producer id."""
        return self.batch.epoch >= EPOCH_MAX


@dataclass(frozen=True, slots=True)
class Redirected:
    """The outcome of a move to a decommissioned partition: another target for each message."""

    partitions: tuple[int, ...]


class TopicKey(NamedTuple):
    """A topic by name and id; without an id, any topic with that name."""

    name: str
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class SweepTopics(Effect):
    """Find out which of these topics were deleted, then report the deleted topics."""

    topics: frozenset[TopicKey]


@dataclass(frozen=True, slots=True)
class Sweep(Effect):
    """Find out which of these idle lanes lead to deleted partitions, then report those lanes."""

    lanes: Mapping[LaneKey, Lane]
