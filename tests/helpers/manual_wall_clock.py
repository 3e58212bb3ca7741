"""A clock for storage: it stands still until a test moves it."""

from __future__ import annotations


class ManualWallClock:
    """See ``Clock``."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def monotonic(self) -> float:
        """Seconds; moves with the wall clock."""
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        """Milliseconds."""
        return self.now_ms
