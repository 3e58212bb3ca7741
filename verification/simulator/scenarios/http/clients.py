"""The clients over HTTP in a run of the simulator, and their final checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from broker.broker import Broker
from raftlog.errors import RaftlogError
from raftlog.types import TopicPartition
from verification.simulator.scenarios.http.probes import Prober
from verification.simulator.scenarios.http.producers import ShippedProducer
from verification.simulator.scenarios.http.raw_producers import BurstProducer, JsonProducer
from verification.simulator.scenarios.http.raw_readers import EventReader, JsonReader
from verification.simulator.scenarios.http.readers import ShippedReader
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.scenarios.http.simulated_client import SimulatedClient

STOP_S: Final = 2.0
TRANSFER_MS: Final = 2000


class HttpClients:
    """One run's clients over HTTP, and the faults of their connections."""

    def __init__(self, side: HttpSide) -> None:
        self._side = side
        self._rng = side.cluster.rng("trouble of streams")

    def clients(self) -> list[SimulatedClient]:
        """The clients over HTTP of this run."""
        partitions = self._side.cluster.odds.partitions
        odds = self._side.odds
        clients: list[SimulatedClient] = [
            ShippedProducer(self._side, f"h{number}") for number in range(odds.producers)
        ]
        clients += [
            ShippedReader(self._side, f"r{number}", number % partitions) for number in range(odds.readers)
        ]
        kinds: dict[str, Callable[[HttpSide, str], SimulatedClient]] = {
            "json producer": JsonProducer,
            "burst producer": BurstProducer,
            "json reader": partial(JsonReader, partition=partitions - 1),
            "event reader": partial(EventReader, partition=0),
        }
        clients += [kinds[kind](self._side, f"{kind[0]}{number}") for number, kind in enumerate(odds.raw)]
        return clients

    def begin(self) -> list[asyncio.Task[None]]:
        """Start all clients; the tasks end when all producers have ended."""
        loop = self._side.cluster.loop
        loop.start_in(SimulatedClient(self._side, "trouble").process, self._trouble())
        return [loop.start_in(client.process, client.live()) for client in self.clients()]

    async def _trouble(self) -> None:
        """Silence the hosts of brokers for their clients, or break all connections of a host."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self._side.odds.trouble_s))
            if self._side.streams.is_calm:
                return
            host = self._rng.choice(self._side.hosts)
            if self._rng.random() < 0.5:
                self._side.streams.silence(host, self._rng.uniform(0.1, 3.0))
            else:
                self._side.streams.reset_all(host)

    # The end.

    async def move_leaders(self) -> None:
        """Transfer the leadership of every partition once more, while all brokers work: clients
        must follow.
        """
        for target in self._side.cluster.checked:
            with contextlib.suppress(RaftlogError):
                await self._side.cluster.machines[0].call(partial(_transfer, target))

    async def probe(self) -> None:
        """Check after healing that every broker serves requests."""
        prober = Prober(self._side)
        await self._side.cluster.loop.start_in(prober.process, prober.live())


async def _transfer(target: TopicPartition, broker: Broker) -> None:
    await broker.admin.transfer_leadership(target, None, TRANSFER_MS)
