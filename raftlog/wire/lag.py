"""The lag of a reader of a partition, as used in responses, metrics, the client and Spark."""

from __future__ import annotations


def records_left(position: int, start: int, end: int) -> int:
    """The number of readable offsets from a reader's position to the end of the partition.

    Offsets below ``start``, the log start, do not count: their records are deleted.
    """
    return max(0, end - max(position, start))
