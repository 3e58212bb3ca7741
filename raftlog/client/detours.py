"""Routes requests through another broker if the leader's advertised address does not answer this client.

Decides: when a request takes a detour. Leaves to others: which other broker answers (``session``). Every
broker forwards requests to the leader of a partition, so one reachable broker is enough. A direct connection
to the leader is faster, and is tried again from time to time.

A broker that has just stopped cannot be reached either, but another broker soon leads its partitions: a
detour begins only after ``AFTER_S`` without an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raftlog.clock import Clock

AFTER_S: Final = 1.0
DIRECT_AGAIN_S: Final = 60.0


@dataclass(slots=True)
class _Unreachable:
    """An address that does not answer. ``direct_at_s`` is the time of the next attempt without a detour."""

    since_s: float
    why: str
    direct_at_s: float | None = None


class Detours:
    """All addresses that did not answer when they were last tried."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unreachable: dict[str, _Unreachable] = {}
        self._noted: set[str] = set()

    def __contains__(self, address: str) -> bool:
        """Whether no broker has answered the last request to this address."""
        return address in self._unreachable

    def failed(self, address: str, since_s: float, why: str) -> None:
        """Note that no broker has answered at this address since ``since_s``."""
        self._unreachable.setdefault(address, _Unreachable(since_s, why)).why = why

    def answered(self, address: str) -> None:
        """Note that a broker has answered at this address."""
        self._unreachable.pop(address, None)

    def is_needed(self, address: str) -> bool:
        """Whether a request for the broker at this address must now go through another broker."""
        found, now_s = self._unreachable.get(address), self._clock.monotonic()
        if found is None or now_s < found.since_s + AFTER_S:
            return False
        is_direct = found.direct_at_s is not None and now_s >= found.direct_at_s
        if is_direct or found.direct_at_s is None:
            found.direct_at_s = now_s + DIRECT_AGAIN_S
        return not is_direct

    def first_reason(self, address: str) -> str | None:
        """Why the address cannot be reached. None after the first call, so that there is only one warning."""
        if address in self._noted:
            return None
        self._noted.add(address)
        return self._unreachable[address].why
