"""Combines an archive and the log in one read: the option ``archive`` of ``spark.read.format("raftlog")``.

Decides: the boundary between both, which is the log start when the read is planned. Records at or above this
offset come from brokers, even if the archive has them, too. Records below it come from files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from raftlog.types import TopicPartition
from spark_io.archive.entries import Catalogue, Entry, reach
from spark_io.archive.files import first_offset_since
from spark_io.archive.storage import Storage
from spark_io.discovery import OffsetOf
from spark_io.partition_ends import Bounds
from spark_io.planning import Range
from spark_io.positions import AtTime


def extended(bounds: Mapping[TopicPartition, Bounds], archived: Catalogue) -> dict[TopicPartition, Bounds]:
    """The bounds of partitions, each extended down to the first archived offset without a gap to the log."""
    return {target: _extended(target, found, archived) for target, found in bounds.items()}


def offset_in_both(
    offset_of: OffsetOf, bounds: Mapping[TopicPartition, Bounds], archived: Catalogue, storage: Storage
) -> OffsetOf:
    """Return a function that looks for a position first in archived files, then in the log.

    ``bounds`` are the offsets in the log.
    """

    def ask(target: TopicPartition, position: AtTime | Literal["earliest"]) -> int:
        log_start = bounds[target].start
        start = _extended(target, bounds[target], archived).start
        if start < log_start:
            if position == "earliest":
                return start
            below = Range(target.topic, target.partition, start, log_start)
            found = first_offset_since(storage, archived.pieces(below), position.ms)
            if found is not None:
                return found
        return offset_of(target, position)

    return ask


def divided(
    ranges: list[Range], bounds: Mapping[TopicPartition, Bounds], archived: Catalogue
) -> tuple[list[tuple[Entry, Range]], list[Range]]:
    """Divide ranges into pieces to read from archived files and ranges to read from brokers.

    ``bounds`` are the offsets in the log.
    """
    pieces: list[tuple[Entry, Range]] = []
    live: list[Range] = []
    for one in ranges:
        log_start = bounds[TopicPartition(one.topic, one.partition)].start
        if one.start < log_start:
            pieces += archived.pieces(one._replace(end=min(one.end, log_start)))
        if one.end > log_start:
            live.append(one._replace(start=max(one.start, log_start)))
    return pieces, live


def _extended(target: TopicPartition, found: Bounds, archived: Catalogue) -> Bounds:
    return replace(found, start=reach(archived, target, found.start))
