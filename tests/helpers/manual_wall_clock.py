"""A clock that a test moves."""

from __future__ import annotations


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

    def trusted_ms(self) -> int:
        """The same."""
        return self.now_ms
