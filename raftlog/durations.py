"""A histogram of durations, for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Durations:
    """A histogram: for each bound, the number of durations up to it; and the sum of all durations
    in seconds.
    """

    __slots__ = ("_bounds", "_counts", "sum_s")

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds``: upper bounds in seconds, in rising order."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.sum_s += seconds
        self._counts[bisect_left(self._bounds, seconds)] += 1

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """The cumulative count for each bound and for ``+Inf``, as in a Prometheus histogram."""
        return [*zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True)]
