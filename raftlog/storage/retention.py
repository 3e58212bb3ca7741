"""The rule of retention: which old segments to delete. A pure decision over numbers.

Whole closed segments are deleted from the oldest on, but no segment that reaches the commit index. So only
committed entries are deleted, and the newest committed entry always stays, except in a log that takes no more
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raftlog.types import Index

TWO_WEEKS_MS = 14 * 24 * 3600 * 1000
NO_LIMIT = -1
NEVER_CUT = Index(0)


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """A closed segment, with the numbers that the rule of retention needs."""

    base: Index
    last: Index
    size_bytes: int
    max_timestamp: int
    stored_ms: int  # the time when its newest batch was stored, by the clocks of brokers

    def is_same_as(self, other: ClosedSegment) -> bool:
        """Whether both values describe one file; its storage time may have become known between them."""
        return (self.base, self.last, self.size_bytes) == (other.base, other.last, other.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    """The topic's ``retention.ms`` and ``retention.bytes`` (-1: no limit), and further limits.

    Records from ``kept_from`` on stay whatever the limits. So do records from ``archived_up_to`` on, if the
    topic requires that they are archived first. Records below ``consumed_up_to`` may be deleted at any age:
    all readers for whom they were kept have consumed them. The active segment is closed if it begins at or
    below ``closed_up_to``, as no records follow: its age is then the age of its newest record. ``log_start``
    is replicated: this replica and each later leader refuse reads below it.
    """

    retention_ms: int = TWO_WEEKS_MS
    retention_bytes: int = NO_LIMIT
    kept_from: Index | None = None
    archived_up_to: Index | None = None
    consumed_up_to: Index | None = None
    closed_up_to: Index | None = None
    log_start: Index = NEVER_CUT


def first_index_to_keep(
    closed: Sequence[ClosedSegment],
    active_bytes: int,
    limits: RetentionLimits,
    *,
    now_ms: int | None,
    commit_index: Index,
    first_index: Index,
) -> Index:
    """The index at which the log should begin: for ``prefix_change``, once all replicas have agreed to it.

    A segment is deleted if its newest record was stored longer ago than the time limit, if the log is larger
    than the size limit, or if all its records are consumed. Segments without committed entries do not
    count as size: their entries may still be lost. The timestamps that producers put into records do not
    count. Without ``now_ms`` no segment is old. The first segment that stays keeps all later segments.
    """
    size = sum(segment.size_bytes for segment in closed if segment.base <= commit_index)
    if commit_index >= (closed[-1].last + 1 if closed else first_index):
        size += active_bytes
    first_kept = first_index
    end = commit_index
    if limits.closed_up_to is not None:
        end = Index(commit_index + 1)  # the entry with the new log start comes after it
    if limits.kept_from is not None:
        end = min(end, limits.kept_from)
    if limits.archived_up_to is not None:
        end = min(end, limits.archived_up_to)
    oldest_ms = None
    if now_ms is not None and limits.retention_ms != NO_LIMIT:
        oldest_ms = now_ms - limits.retention_ms
    for segment in closed:
        is_old = oldest_ms is not None and segment.stored_ms < oldest_ms
        is_excess = limits.retention_bytes != NO_LIMIT and size > limits.retention_bytes
        is_consumed = limits.consumed_up_to is not None and segment.last < limits.consumed_up_to
        if segment.last >= end or not (is_old or is_excess or is_consumed):
            break
        size -= segment.size_bytes
        first_kept = Index(segment.last + 1)
    return first_kept
