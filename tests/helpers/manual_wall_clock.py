"""Clocks that a test moves."""

from __future__ import annotations

from raftlog.clock import SystemClock


class ManualWallClock:
    """A clock for storage: it stands still until a test moves it."""

    is_known = True

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def monotonic(self) -> float:
        """Seconds; moves with the wall clock."""
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        return self.now_ms


class ShiftedClock(SystemClock):
    """The machine's own clock, with a wall clock that a test moves by ``shift_ms``."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def wall_ms(self) -> int:
        """Milliseconds since 1970, and the shift."""
        return super().wall_ms() + self.shift_ms
