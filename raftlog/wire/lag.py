"""The lag of a reader of a partition: one meaning in responses, metrics, the client and Spark."""

from __future__ import annotations


def records_left(position: int, start: int, end: int) -> int:
    """Offsets from a reader's position to the end that can still be read.

    Records below ``start``, the log start, are deleted: they do not count.
    """
    return max(0, end - max(position, start))
