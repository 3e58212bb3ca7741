"""HTTP in one run: the listeners of brokers, and clients that use them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.broker import Broker
from broker.listeners.listener import Listener
from raftlog.types import GroupId
from verification.simulator.convergence import Convergence
from verification.simulator.event_loop import Process
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.part import Part
from verification.simulator.scenarios.http.clients import HttpClients
from verification.simulator.scenarios.http.odds import HttpOdds
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.simulated_cluster import SimulatedCluster


class Http(Part):
    """The HTTP listeners and clients of one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: HttpOdds) -> None:
        self._cluster = cluster
        self._side = HttpSide(cluster, odds)
        self._clients = HttpClients(self._side)

    def start(self) -> list[asyncio.Task[None]]:
        """Start the clients; each client is a process of its own."""
        return self._clients.begin()

    def began(self, machine: Machine) -> None:
        """Add the machine's host to the simulated network, without a listener yet."""
        self._side.started(machine)

    async def serves(self, machine: Machine, broker: Broker) -> Listener:
        """Let the broker listen on the simulated network; return its listener."""
        return await self._side.serve(machine, broker)

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """Close the machine's connections."""
        self._side.ended(machine, process, silently=silently)

    def held(self, machine: Machine) -> Iterable[tuple[str, int]]:
        """The resources that the HTTP server of a broker holds, by name."""
        return self._side.held_resources(machine)

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Decode newly committed records, because responses may show them now."""
        self._side.known.committed_to(group_id)

    def heal(self) -> None:
        """Heal the connections: they become fast and do not break any more."""
        self._side.streams.heal()

    async def converged(self, convergence: Convergence) -> None:
        """Transfer leaderships, so that clients must follow to other leaders once more."""
        await self._clients.move_leaders()
        await convergence.reached(self._cluster.machines[:1])

    async def actors_ended(self) -> None:
        """Check that every broker serves all kinds of requests."""
        await self._clients.probe()
