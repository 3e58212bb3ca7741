"""The interface of a replicated state machine that a broker hosts. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from raftlog.records.aborted import AbortedRanges
from raftlog.storage.retention import RetentionLimits
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, NodeId


@dataclass(frozen=True, slots=True)
class SnapshotRetention:
    """Retention by snapshots: a log of more than ``log_bytes_max`` is cut to its newest entries."""

    log_bytes_max: int
    entries_kept: int  # so that followers that are a little behind need no snapshot


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The rules of compaction, for logs whose state is a function of the newest record of each key."""

    headers_needed: Callable[[], Collection[int]]  # base offsets of batches whose headers the state needs
    dirty_ratio_min: float = 0.5  # the dirty part of the closed segments from which they are compacted
    delete_retention_ms: int = 24 * 3600 * 1000  # the minimum time that a tombstone stays
    last_stable_offset: int = 1 << 63  # records at or above it are not compacted; by default all may be
    aborted: Callable[[], AbortedRanges] = AbortedRanges  # below the last stable offset
    joins_segments: bool = True  # False where whole segments are deleted by their age
    state_has_records: bool = False  # whether the state machine's state has values of deletable keys


class NotYet(Exception):
    """A log must not be opened yet; the message names the condition. Opening is retried."""


class Tenant(Protocol):
    """One replica of one replicated state machine. All methods are called on the event loop's thread.

    The supervisor opens the log and then calls ``take_part``. After a failure it calls ``leave``,
    repairs the log, and begins again with ``open_log``.
    """

    @property
    def group_id(self) -> GroupId:
        """The id of the Raft group; constant while the tenant is hosted."""

    @property
    def name(self) -> str:
        """The name of the replica, for logs and operators."""

    @property
    def directory(self) -> str:
        """The directory of the replica's log."""

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """The other brokers with a replica of the group, which a repair may ask."""

    @property
    def is_leaving(self) -> bool:
        """Whether this replica is about to be deleted; then it is not repaired."""

    @property
    def retention(self) -> RetentionLimits | SnapshotRetention | None:
        """The rule for deleting a part of the log; None if no part may be deleted."""

    @property
    def compaction(self) -> CompactionRules | None:
        """The rules for the compaction of the log; None for a log without compaction."""

    async def open_log(self) -> SegmentedLog:
        """Open the log, or create it. Raises ``NotYet``, ``LogCorrupt`` and ``OSError``."""

    def take_part(self, log: SegmentedLog) -> None:
        """Open the Raft group on this log (``GroupHost.open_group``) and serve from it.

        Raises ``LogCorrupt`` and ``OSError``; the caller then closes the log.
        """

    async def leave(self) -> None:
        """Stop serving; the caller then closes the group. Do nothing without an earlier ``take_part``."""
