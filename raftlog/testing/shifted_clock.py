"""A clock that tests move forward."""

from __future__ import annotations

from raftlog.clock import SystemClock


class ShiftedClock(SystemClock):
    """The machine's clocks: the wall clock is ahead by ``shift_ms``, the monotonic clock by ``passed_ms``."""

    def __init__(self) -> None:
        self.shift_ms = 0
        self.passed_ms = 0  # never falls

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""
        return super().monotonic() + self.passed_ms / 1000

    def wall_ms(self) -> int:
        """Milliseconds since 1970, plus ``shift_ms``."""
        return super().wall_ms() + self.shift_ms
