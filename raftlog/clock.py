"""The clock port: everything above the core reads the time through it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time: ``SystemClock`` in production, a manual clock in tests."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back. For timeouts."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. For timestamps that people see; may jump."""

    @property
    def is_known(self) -> bool:
        """Whether ``wall_ms`` may be compared with the time of other brokers."""


class TrustedClock(Clock, Protocol):
    """A clock that is compared with the clocks of other brokers."""

    def trusted_ms(self) -> int | None:
        """Milliseconds since 1970, for deadlines by age; None while the brokers' clocks disagree too much."""


class SystemClock:
    """The machine's own clock."""

    is_known = True
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def trusted_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock: no other clock is compared with it."""
        return self.wall_ms()
