"""Divides offsets among Spark partitions, and limits the number of offsets of a trigger. No IO.

A Python task of Spark costs 35 to 65 ms even without records, as much as reading 10,000. So partitions with
few records share a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from raftlog.types import TopicPartition

PACKED_RECORDS: Final = 10_000

Offsets = Mapping[TopicPartition, int]


class Range(NamedTuple):
    """Offsets of one partition, ``end`` excluded."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The number of offsets; compaction and transactions leave fewer records."""
        return self.end - self.start


def tasks(
    ranges: Sequence[Range],
    *,
    min_partitions: int | None = None,
    max_partitions: int | None = None,
    max_records: int | None = None,
) -> list[list[Range]]:
    """The ranges of each task.

    There are as few tasks as possible, with about ``PACKED_RECORDS`` offsets each. Ranges are split so that
    there are at least ``min_partitions`` tasks, if there are so many offsets, and so that no task has more
    than ``max_records`` offsets. ``max_partitions`` takes precedence over ``max_records``.
    """
    total = sum(one.size for one in ranges)
    wanted = min(min_partitions or 1, max(1, total))
    piece = max_records or max(1, total)
    if wanted > 1:
        piece = min(piece, max(1, total // wanted))
    pieces = [part for one in ranges for part in _split(one, piece)]
    found = _packed(pieces, min(piece, PACKED_RECORDS))
    if max_partitions is not None and len(found) > max_partitions:
        return _merged(found, max_partitions)
    return found


def limited(start: Offsets, end: Offsets, rows_max: int) -> dict[TopicPartition, int]:
    """The end offsets of a trigger that takes ``rows_max`` offsets, in proportion to the available offsets.

    Each partition with new records gets at least one offset, so that no partition waits for ever. For this
    reason alone the trigger may take more than ``rows_max`` offsets.
    """
    sizes = {one: end[one] - start[one] for one in end if end[one] > start.get(one, end[one])}
    total = sum(sizes.values())
    if total <= rows_max:
        return dict(end)
    left = max(0, rows_max - len(sizes))  # in addition to the first offset of each partition
    others = max(1, total - len(sizes))
    shares = {one: 1 + left * (size - 1) // others for one, size in sizes.items()}
    rest = max(0, rows_max - sum(shares.values()))  # left by the division: fewer than partitions
    for one in sorted(sizes, key=lambda one: (shares[one] - sizes[one], one))[:rest]:
        shares[one] += 1
    return {one: start[one] + shares[one] if one in shares else end[one] for one in end}


def rows_of_bytes(
    start: Offsets, end: Offsets, record_bytes: Mapping[TopicPartition, float], bytes_max: int
) -> int:
    """Estimated number of offsets in ``bytes_max`` bytes, from the mean record size of each partition."""
    sizes = {one: max(0, end[one] - start.get(one, end[one])) for one in end}
    total = sum(sizes.values())
    total_bytes = sum(size * record_bytes.get(one, 0.0) for one, size in sizes.items())
    if total_bytes <= bytes_max:
        return max(1, total)
    return max(1, int(total * bytes_max / total_bytes))


def _split(one: Range, piece: int) -> list[Range]:
    count = -(-one.size // piece)
    bounds = [one.start + one.size * number // count for number in range(count + 1)] if count else []
    return [one._replace(start=low, end=high) for low, high in pairwise(bounds)]


def _packed(pieces: Sequence[Range], target: int) -> list[list[Range]]:
    found: list[list[Range]] = []
    size = 0
    for one in pieces:
        if found and size + one.size <= target:
            found[-1].append(one)
            size += one.size
        else:
            found.append([one])
            size = one.size
    return found


def _merged(found: list[list[Range]], count: int) -> list[list[Range]]:
    """Merge tasks into ``count`` tasks: add each task, the largest first, to the smallest merged task."""
    bins: list[list[Range]] = [[] for _ in range(count)]
    sizes = [0] * count
    for task in sorted(found, key=lambda task: -sum(one.size for one in task)):
        least = sizes.index(min(sizes))
        bins[least] += task
        sizes[least] += sum(one.size for one in task)
    return bins
