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
    """The snapshot stands in for the log: a log of more than ``log_bytes_max`` keeps its newest entries."""

    log_bytes_max: int
    entries_kept: int  # so that followers that are a little behind need no snapshot


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The newest record of each key stays; for logs whose state is a function of these records."""

    headers_needed: Callable[[], Collection[int]]  # base offsets of batches whose header the state depends on
    dirty_ratio_min: float = 0.5  # of the closed segments, before they are compacted
    delete_retention_ms: int = 24 * 3600 * 1000  # how long a tombstone stays, at least
    last_stable_offset: int = 1 << 63  # what is at it or above is not compacted; by default everything may be
    aborted: Callable[[], AbortedRanges] = AbortedRanges  # below the last stable offset
    joins_segments: bool = True  # not where whole segments are deleted by their age
    state_has_records: bool = False  # the state machine's state has values of keys that may be deleted


class NotYet(Exception):
    """A log must not be opened yet; the message says what it waits for. It is tried again."""


class Tenant(Protocol):
    """One replica of one replicated state machine. All methods are called on the event loop's thread.

    The supervisor opens the log, then has the tenant take part. After a failure it has the tenant leave,
    repairs the log, and begins again with ``open_log``.
    """

    @property
    def group_id(self) -> GroupId:
        """The Raft group; the same for as long as the tenant is hosted."""

    @property
    def name(self) -> str:
        """The name of the replica, in logs and for operators."""

    @property
    def directory(self) -> str:
        """The directory of the log."""

    @property
    def peers(self) -> tuple[NodeId, ...]:
        """The other brokers with a replica: those that a repair may ask."""

    @property
    def is_leaving(self) -> bool:
        """Whether this replica is about to be deleted; it is not repaired then."""

    @property
    def retention(self) -> RetentionLimits | SnapshotRetention | None:
        """Which part of the log may be deleted. None: nothing."""

    @property
    def compaction(self) -> CompactionRules | None:
        """The rules for the compaction of the log; None for a log without compaction."""

    async def open_log(self) -> SegmentedLog:
        """Open the log, or create it. Raises ``NotYet``, ``LogCorrupt`` and ``OSError``."""

    def take_part(self, log: SegmentedLog) -> None:
        """Open the Raft group on this log (``GroupHost.open_group``) and serve from it.

        Raises ``LogCorrupt`` and ``OSError``; the caller closes the log then.
        """

    async def leave(self) -> None:
        """Serve no more: the caller closes the group next. Does nothing without an earlier ``take_part``."""
