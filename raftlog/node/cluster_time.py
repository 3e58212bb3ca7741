"""The time that the brokers of a cluster agree on: a wall clock that does not jump.

With their heartbeats, brokers send one another their wall clock and the time that they use. Cluster time is
the median of the times that brokers use, each advanced by this broker's monotonic clock since it was
received. A broker uses its wall clock while that is near cluster time, and cluster time otherwise: then no
record expires by age, and the broker's log and metrics say so.

Wall clocks alone decide in two cases. While no broker has a time yet, as when a whole cluster starts, the
brokers use their wall clocks once a majority of them agree. And a jump that a majority of wall clocks make
together is accepted once these clocks have agreed for ``pause_ms``, so that a cluster whose machines were
suspended continues without an operator.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final, NamedTuple

from raftlog.clock import Clock
from raftlog.types import NodeId

_log = logging.getLogger("raftlog.node")

UNKNOWN_MS: Final = -1  # the time of a broker that has none yet
RECENT_S: Final = 60.0  # older readings do not count
REPORT_AFTER_S: Final = 10.0  # a broker that has just started may be without a time for so long


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockBounds:
    """Limits beyond which a wall clock is not trusted. Every broker of a cluster should use the same."""

    jump_ms_max: int = 600_000  # a wall clock that differs more from cluster time is wrong
    pause_ms: int = 3_600_000  # a jump that a majority of brokers make is accepted after this time


CLOCK_BOUNDS: Final = ClockBounds()


class ClockReading(NamedTuple):
    """The times that a broker sends with its heartbeats."""

    wall_ms: int
    time_ms: int  # the time that the broker uses, or UNKNOWN_MS


class _Heard(NamedTuple):
    at_s: float
    reading: ClockReading


class ClusterTime:
    """One broker's ``Clock``, compared with the clocks of its peers. For the event loop's thread only.

    ``wall_ms`` is within ``jump_ms_max`` of cluster time as soon as cluster time is known. ``monotonic`` is
    the machine's monotonic clock.
    """

    def __init__(self, clock: Clock, bounds: ClockBounds) -> None:
        self.monotonic = clock.monotonic
        self._clock = clock
        self._bounds = bounds
        self._heard: dict[NodeId, _Heard] = {}
        self._own: _Heard | None = None  # this broker's reading at the last ``look``
        self._median_ms = UNKNOWN_MS  # the median of the brokers' times at the last ``look``
        self._agree_since_s: float | None = None  # time since when a majority agrees without a jump here
        self._started_s = clock.monotonic()
        self._was_trusted = True  # according to the log

    def wall_ms(self) -> int:
        """Milliseconds since 1970: the wall clock, or cluster time if the wall clock is too far from it."""
        wall_ms, own = self._clock.wall_ms(), self._own
        if own is None or own.reading.time_ms == UNKNOWN_MS:
            return wall_ms
        expected_ms = own.reading.time_ms + round((self.monotonic() - own.at_s) * 1000)
        if abs(wall_ms - expected_ms) <= self._bounds.jump_ms_max:
            return wall_ms
        return expected_ms

    @property
    def is_known(self) -> bool:
        """Whether this broker uses a time that a majority have agreed on."""
        return self._own is not None and self._own.reading.time_ms != UNKNOWN_MS

    def trusted_ms(self) -> int | None:
        """The earlier of wall clock and cluster time; None while they disagree or cluster time is unknown."""
        own = self._own
        if own is None or own.reading.time_ms == UNKNOWN_MS:
            return None
        wall_ms, now_s = self._clock.wall_ms(), self._clock.monotonic()
        if not self._is_near(wall_ms, _advanced(own.reading.time_ms, own.at_s, now_s)):
            return None
        return min(wall_ms, _advanced(self._median_ms, own.at_s, now_s))

    @property
    def is_trusted(self) -> bool:
        """Whether this machine's wall clock agrees with cluster time."""
        return self.trusted_ms() is not None

    @property
    def offset_ms(self) -> int:
        """The milliseconds by which the wall clock is ahead of the time that this broker uses."""
        return self._clock.wall_ms() - self.wall_ms()

    def reading(self) -> ClockReading:
        """The times that this broker sends to its peers now."""
        wall_ms = self._clock.wall_ms()
        expected_ms = self._expected_ms()
        if expected_ms == UNKNOWN_MS or self._is_near(wall_ms, expected_ms):
            return ClockReading(wall_ms, UNKNOWN_MS if expected_ms == UNKNOWN_MS else wall_ms)
        return ClockReading(wall_ms, expected_ms)

    def heard(self, peer: NodeId, reading: ClockReading) -> None:
        """Store the times that a peer has sent."""
        self._heard[peer] = _Heard(self._clock.monotonic(), reading)

    def look(self, brokers: int) -> None:
        """Compare the clocks of all brokers; called with every round of heartbeats.

        ``brokers`` is the number of brokers, with this broker.
        """
        now_s, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        walls, times = list[int](), list[int]()
        for at_s, (peer_wall_ms, peer_time_ms) in self._heard.values():
            if now_s - at_s <= RECENT_S:
                since_ms = round((now_s - at_s) * 1000)
                walls.append(peer_wall_ms + since_ms)
                if peer_time_ms != UNKNOWN_MS:
                    times.append(peer_time_ms + since_ms)
        self._note_agreement(now_s, wall_ms, walls, brokers)
        own_ms = self._expected_ms()
        if own_ms != UNKNOWN_MS:
            times.append(own_ms)
        median_ms = sorted(times)[(len(times) - 1) // 2] if times else UNKNOWN_MS
        since_s = self._agree_since_s
        if since_s is not None and (not times or (now_s - since_s) * 1000 >= self._bounds.pause_ms):
            time_ms = wall_ms  # even if the median has not followed yet
        elif self._is_near(wall_ms, median_ms):
            time_ms = wall_ms
        elif self._is_near(own_ms, median_ms):
            # Readings are late, and their delays differ: a step back to a later reading would slow down time.
            time_ms = max(own_ms, median_ms)
        else:
            time_ms = median_ms
        self._median_ms = median_ms if self._is_near(median_ms, time_ms) else time_ms
        self._own = _Heard(now_s, ClockReading(wall_ms, time_ms))
        self._report(now_s)

    def _note_agreement(self, now_s: float, wall_ms: int, others: list[int], brokers: int) -> None:
        own = self._own
        jumped = own is not None and not self._is_near(
            wall_ms, _advanced(own.reading.wall_ms, own.at_s, now_s)
        )
        agreeing = 1 + sum(self._is_near(other_ms, wall_ms) for other_ms in others)
        if 2 * agreeing <= brokers:
            self._agree_since_s = None
        elif jumped or self._agree_since_s is None:
            self._agree_since_s = now_s

    def _expected_ms(self) -> int:
        """The time of this broker at the last ``look``, advanced by the monotonic clock since then."""
        if self._own is None:
            return UNKNOWN_MS
        return _advanced(self._own.reading.time_ms, self._own.at_s, self._clock.monotonic())

    def _is_near(self, one_ms: int, other_ms: int) -> bool:
        return abs(one_ms - other_ms) <= self._bounds.jump_ms_max

    def _report(self, now_s: float) -> None:
        is_trusted = self.is_trusted
        if is_trusted == self._was_trusted or (
            self._expected_ms() == UNKNOWN_MS and now_s - self._started_s < REPORT_AFTER_S
        ):
            return
        self._was_trusted = is_trusted
        if is_trusted:
            _log.warning("the wall clock agrees with cluster time again; records are deleted by age again")
        elif self._expected_ms() == UNKNOWN_MS:
            _log.warning("no majority of the brokers agrees on a time yet; no record is deleted by age")
        else:
            _log.warning(
                "the wall clock is off by %+d s; no record is deleted by age until it agrees, "
                "or until a majority of the brokers have agreed with it for %d s",
                self.offset_ms // 1000,
                self._bounds.pause_ms // 1000,
            )


def _advanced(value_ms: int, at_s: float, now_s: float) -> int:
    return value_ms if value_ms == UNKNOWN_MS else value_ms + round((now_s - at_s) * 1000)
