"""Computes the end of the next batch of a stream. No IO."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from raftlog.types import TopicPartition
from raftlog.wire.lag import records_left
from spark_io.discovery import surviving
from spark_io.errors import DataLoss
from spark_io.options import Limits
from spark_io.partition_ends import Bounds, Removed, is_lossless, is_over
from spark_io.planning import Range, limited, rows_of_bytes

Offsets = dict[TopicPartition, int]
_log = logging.getLogger("spark_io")


def next_end(
    start: Offsets,
    bounds: Mapping[TopicPartition, Bounds],
    *,
    limits: Limits | None,
    target: Offsets | None,
    fails: bool,
    removed: Mapping[TopicPartition, Removed] | None = None,
) -> Offsets:
    """The end of the batch that begins at ``start``; equal to ``start`` if there are no new records.

    ``target`` bounds the end under ``Trigger.AvailableNow``. Without ``limits`` the batch takes all records.
    Raises ``DataLoss`` for missing partitions; ``removed`` are the missing partitions that were
    decommissioned and removed.
    """
    _check_present(start, bounds, removed or {}, fails)
    end = {}
    for one, at in start.items():
        available = bounds[one].end if one in bounds else at
        if target is not None:
            available = min(available, target.get(one, at))
        end[one] = max(at, available)
    if limits is not None:
        end = _within(limits, start, end, bounds)
    entering = {one: found.start for one, found in bounds.items() if one not in start}
    if target is not None:
        entering = {one: at for one, at in entering.items() if target.get(one, at) > at}
    return {**end, **{one: at for one, at in entering.items() if bounds[one].end > at}}


def waits_for_more(
    start: Offsets, bounds: Mapping[TopicPartition, Bounds], limits: Limits, since_last_s: float | None
) -> bool:
    """Whether to delay the next batch, because it would have fewer than ``minOffsetsPerTrigger`` records.

    ``since_last_s`` is the time since the last batch with records; None before the first batch, which is
    never delayed. No batch is delayed for longer than ``maxTriggerDelay``.
    """
    rows_min = limits.min_offsets_per_trigger
    if rows_min is None or since_last_s is None or since_last_s >= limits.max_trigger_delay_s:
        return False
    left = (
        records_left(at, bounds[one].start, bounds[one].end) for one, at in start.items() if one in bounds
    )
    return sum(left) < rows_min


def stream_ranges(start: Offsets, end: Offsets) -> list[Range]:
    """The ranges that a batch reads. A partition that is not in ``start`` is read from the next batch on."""
    return [
        Range(one.topic, one.partition, start[one], end[one])
        for one in sorted(end)
        if one in start and end[one] > start[one]
    ]


def check_starts(start: Offsets, bounds: Mapping[TopicPartition, Bounds], fails: bool) -> None:
    """Raise ``DataLoss`` if the first records of a batch are deleted. Called before the batch is planned."""
    for one, at in start.items():
        if one in bounds and not is_lossless(at, bounds[one]):
            surviving(one, at, bounds[one].start, fails)


def without_removed(
    start: Offsets, bounds: Mapping[TopicPartition, Bounds], removed: Mapping[TopicPartition, Removed]
) -> tuple[Offsets, dict[TopicPartition, Bounds]]:
    """``start`` and ``bounds`` without removed partitions that were read to their end.

    A stream continues without these partitions.

    A later partition with the number of a removed partition is added by the next batch.
    """
    over = {one for one, at in start.items() if is_over(at, bounds.get(one), removed.get(one))}
    if not over:
        return start, {**bounds}
    return (
        {one: at for one, at in start.items() if one not in over},
        {one: found for one, found in bounds.items() if one not in over},
    )


def behind(start: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> list[TopicPartition]:
    """Partitions that end below the offset up to which they were read: their leader or topic is new."""
    return [one for one, at in sorted(start.items()) if one in bounds and bounds[one].end < at]


def check_ends(start: Offsets, bounds: Mapping[TopicPartition, Bounds], fails: bool) -> None:
    """Raise ``DataLoss`` for partitions that still end below the offset up to which they were read."""
    for one in behind(start, bounds):
        lost = (
            f"{one} was read up to offset {start[one]}, and ends at {bounds[one].end}: the topic was deleted "
            "and created again, or records were lost"
        )
        if fails:
            raise DataLoss(
                f"{lost}; use a new checkpointLocation to read from the beginning, or set "
                f"failOnDataLoss=false to wait for offset {start[one]}"
            )
        _log.warning("%s; waiting for offset %d", lost, start[one])


def _check_present(
    start: Offsets,
    bounds: Mapping[TopicPartition, Bounds],
    removed: Mapping[TopicPartition, Removed],
    fails: bool,
) -> None:
    gone = sorted(one for one in start if one not in bounds)
    if not gone:
        return
    early = next((one for one in gone if one in removed), None)
    if early is not None:
        lost = (
            f"{early} was read up to offset {start[early]}, and was removed with records up to offset "
            f"{removed[early].records_end - 1}: retention was faster than the reader"
        )
    else:
        lost = f"{', '.join(map(str, gone))} was read before, but no longer exists or is not subscribed"
    if fails:
        raise DataLoss(f"{lost}; set failOnDataLoss=false to continue without these partitions")
    _log.warning("%s; reading continues without these partitions", lost)


def _within(limits: Limits, start: Offsets, end: Offsets, bounds: Mapping[TopicPartition, Bounds]) -> Offsets:
    rows_max = limits.max_offsets_per_trigger
    if limits.max_bytes_per_trigger is not None:
        record_bytes = {one: found.record_bytes for one, found in bounds.items()}
        rows = rows_of_bytes(start, end, record_bytes, limits.max_bytes_per_trigger)
        rows_max = rows if rows_max is None else min(rows, rows_max)
    return end if rows_max is None else limited(start, end, rows_max)
