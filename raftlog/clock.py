"""The clock port: the only way in which anything above the core learns the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time. ``SystemClock`` is the real one, tests bring a manual one."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back. For time-outs."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970. For timestamps that people see; may jump."""

    @property
    def is_known(self) -> bool:
        """Whether ``wall_ms`` may be compared with the time of other brokers."""


class TrustedClock(Clock, Protocol):
    """A clock that is compared with the clocks of other brokers."""

    def trusted_ms(self) -> int | None:
        """Milliseconds since 1970, for what ends by its age; None while clocks disagree too much."""


class SystemClock:
    """The machine's own clock."""

    is_known = True
    monotonic = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def trusted_ms(self) -> int:
        """The wall clock: there is no other one to compare it with."""
        return self.wall_ms()
