"""The clock port: everything above the core reads the time through it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time: ``SystemClock`` in production, a manual clock in tests."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment, for timeouts; the value never falls."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for timestamps that people see; the value may jump forwards or
        backwards.
        """

    @property
    def is_known(self) -> bool:
        """Whether ``wall_ms`` may be compared with the time of other brokers."""


class TrustedClock(Clock, Protocol):
    """A clock that is compared with the clocks of other brokers."""

    def trusted_ms(self) -> int | None:
        """Milliseconds since 1970, to compare with stored times; None while brokers' clocks disagree."""


class SystemClock:
    """The machine's own clock."""

    is_known = True
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def trusted_ms(self) -> int:
        """Milliseconds since 1970 by the machine's clock, which is not compared with any other clock."""
        return self.wall_ms()
