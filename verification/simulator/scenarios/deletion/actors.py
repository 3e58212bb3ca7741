"""A client that deletes the oldest records of partitions that other clients use.

Decides: which records the client deletes, and when. Leaves to others: whether deleted records become visible
again (``log_starts``).
"""

from __future__ import annotations

import contextlib

from partitions.values import Start
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.types import Offset
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.simulated_cluster import SimulatedCluster


class Deleter(Client):
    """A client that deletes records up to a random offset, which may be above the end; it continues after
    refusals.
    """

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, "deleter")

    async def run(self) -> None:
        """Delete records from one partition after another until the run ends."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            await self.pause()
            with contextlib.suppress(RaftlogError):
                await self._delete(self.rng.randrange(len(self.cluster.checked)))

    async def _delete(self, partition: int) -> None:
        target = self.cluster.checked[partition]
        end, _ = await self.ask(self.machine(), lambda broker: broker.gateway.offset_at(target, Start.LATEST))
        offset = Offset(max(0, end - self.rng.choice((-1, 0, 1, 2, 5, 10, 50))))
        self.cluster.log_starts.asked(target, offset)
        try:
            start = await self.ask(
                self.machine(),
                lambda broker: broker.gateway.delete_before(target, offset, timeout_ms=TIMEOUT_MS),
            )
        except InvalidRequest:
            return  # it was above the end
        self.cluster.log_starts.deleted(target, offset, start)
