"""A limit on log lines that unauthenticated peers can cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable


class LogLimit:
    """Limits a log to one line per reason in each interval.

    Reasons are a small, fixed set of texts; ``time`` returns seconds.
    """

    def __init__(self, time: Callable[[], float], interval_s: float = 10.0) -> None:
        self._time = time
        self._interval_s = interval_s
        self._silent_until: dict[str, float] = {}
        self._left_out: Counter[str] = Counter()

    def left_out(self, reason: str) -> int | None:
        """The number of lines left out since the last line of this reason; None to leave this line out."""
        now = self._time()
        if now < self._silent_until.get(reason, now):
            self._left_out[reason] += 1
            return None
        self._silent_until[reason] = now + self._interval_s
        return self._left_out.pop(reason, 0)
