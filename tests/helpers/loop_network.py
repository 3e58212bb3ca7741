"""A ``FakeNetwork`` in the time of the running loop, real or virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from raftlog.types import NodeId
from tests.helpers.fake_transport import FakeNetwork, FakeTransport


class LoopNetwork(FakeNetwork):
    """A ``FakeNetwork`` with the clock of the running loop, which needs no ``advance``."""

    @property
    def now(self) -> float:
        """Seconds."""
        return asyncio.get_running_loop().time()

    @now.setter
    def now(self, seconds: float) -> None:
        """The loop sees to it."""

    def schedule(self, seconds: float, action: Callable[[], None]) -> None:
        """Run it when it is due."""
        asyncio.get_running_loop().call_later(seconds, action)

    def member(self, node: NodeId, nodes: Iterable[NodeId]) -> FakeTransport:
        """The transport of one of these nodes, with all others as its peers."""
        transport = self.transport(node)
        for other in nodes:
            if other != node:
                transport.set_peer(other, "", 0)
        return transport

    def heal_all(self) -> None:
        """End all faults of all links."""
        for sender, receiver in sorted(self._links):
            self.heal(sender, receiver)

    def cut_both(self, one: NodeId, other: NodeId) -> None:
        """Break both directions of a pair."""
        self.cut(one, other)
        self.cut(other, one)

    def isolate(self, node: NodeId) -> None:
        """Break all links of a node."""
        for sender, receiver in sorted(self._links):
            if node in (sender, receiver):
                self.cut(sender, receiver)
