"""A histogram of durations, for metrics. Nothing is decided here."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Durations:
    """How many durations lie up to each bound, and their sum, in seconds."""

    __slots__ = ("_bounds", "_counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds`` rise."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.sum_s += seconds
        self._counts[bisect_left(self._bounds, seconds)] += 1

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """The counts as Prometheus has them: up to each bound, and up to any."""
        return [*zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True)]
