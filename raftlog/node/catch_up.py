"""The rate at which a broker sends to replicas that are far behind, so that its other work continues.

Decides: whether another append may be sent now to a member that lacks more than ``FAR_BYTES``. One rate
applies to all groups of a broker together. A refused append is retried after one heartbeat interval.
"""

from __future__ import annotations

from typing import Final

from raftlog.clock import Clock

FAR_BYTES: Final = 8 << 20
BURST_S: Final = 0.2  # longer than a heartbeat interval: a refused follower asks again after that interval


class CatchUpRate:
    """A bucket that fills with ``bytes_per_s``; with 0 there is no limit."""

    def __init__(self, clock: Clock, bytes_per_s: int) -> None:
        self._clock = clock
        self._bytes_per_s = bytes_per_s
        self._room = bytes_per_s * BURST_S
        self._filled_at = clock.monotonic()

    def has_room(self) -> bool:
        """Whether one more append may be sent now."""
        if not self._bytes_per_s:
            return True
        now = self._clock.monotonic()
        filled = self._room + (now - self._filled_at) * self._bytes_per_s
        self._room, self._filled_at = min(filled, self._bytes_per_s * BURST_S), now
        return self._room > 0

    def spend(self, size_bytes: int) -> None:
        """Count the bytes of an append that was sent.

        Bytes that exceed the bucket's content reduce its later content.
        """
        self._room -= size_bytes
