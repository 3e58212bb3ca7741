"""The machine's clock, with a wall clock that a test moves."""

from __future__ import annotations

from raftlog.clock import SystemClock


class ShiftedClock(SystemClock):
    """The machine's own clock, with a wall clock that is ahead by ``shift_ms``."""

    def __init__(self, shift_ms: int = 0) -> None:
        self.shift_ms = shift_ms

    def wall_ms(self) -> int:
        """Milliseconds since 1970, and the shift."""
        return super().wall_ms() + self.shift_ms
