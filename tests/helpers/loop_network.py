"""A ``FakeNetwork`` in the time of the running loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from raftlog.types import NodeId
from tests.helpers.fake_transport import FakeNetwork


class LoopNetwork(FakeNetwork):
    """A ``FakeNetwork`` with the clock of the running loop, which needs no ``advance``."""

    def __init__(self, rng: random.Random, latency_s: float = 0.001) -> None:
        self._loop = asyncio.get_running_loop()
        self._latency_s = latency_s
        super().__init__(rng)

    @property
    def now(self) -> float:
        """Seconds."""
        return self._loop.time()

    @now.setter
    def now(self, seconds: float) -> None:
        """The loop sees to it."""

    def schedule(self, seconds: float, action: Callable[[], None]) -> None:
        """Run it when it is due."""
        self._loop.call_later(seconds, action)

    def heal_all(self, nodes: Sequence[NodeId]) -> None:
        """End all faults of all links."""
        for one in nodes:
            for other in nodes:
                if one != other:
                    self.heal(one, other)

    def cut_both(self, one: NodeId, other: NodeId) -> None:
        """Break both directions of a pair."""
        self.cut(one, other)
        self.cut(other, one)
