"""HTTP in a run of the simulator: the listeners of its brokers, and the clients that come over them.

Decides: how ``api`` and the clients are joined to the simulated loop, and what is looked at in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from api.app import Boundary
from api.broker import Broker
from api.connections.listener import HttpListener
from api.http.access import ALL
from api.serving import services_of
from chaos.simulator.http.guest import Guest
from chaos.simulator.http.judge import Judge
from chaos.simulator.http.odds import HttpOdds
from chaos.simulator.http.probes import Prober
from chaos.simulator.http.producers import ShippedProducer
from chaos.simulator.http.raw_producers import BurstProducer, JsonProducer
from chaos.simulator.http.raw_readers import EventReader, JsonReader
from chaos.simulator.http.readers import ShippedReader
from chaos.simulator.http.streams import StreamNetwork
from chaos.simulator.http.transport import Tap
from raftlog.errors import RaftlogError
from raftlog.types import TopicPartition

if TYPE_CHECKING:
    from chaos.simulator.event_loop import Process
    from chaos.simulator.machine import Machine
    from chaos.simulator.simulation import Simulation

STOP_S: Final = 2.0
TRANSFER_MS: Final = 2000


class HttpSide:
    """One run's."""

    def __init__(self, simulation: Simulation, odds: HttpOdds) -> None:
        self.simulation = simulation
        self.odds = odds
        self.streams = StreamNetwork(simulation.loop, simulation.rng("streams"), odds.streams)
        self.judge = Judge(simulation)
        self._rng = simulation.rng("trouble of streams")
        self._machines: dict[str, Machine] = {f"b{one.node}": one for one in simulation.machines}
        self._boundaries: dict[Machine, Boundary] = {}
        simulation.loop.listen = self.streams.listen
        self.streams.on_accept = self._accept
        self.streams.on_piece = lambda size: simulation.trace.frame(size.to_bytes(4))

    # Brokers.

    async def serve(self, machine: Machine, broker: Broker) -> HttpListener:
        """Listen, as ``api.server`` does once a broker has started."""
        rng = random.Random(f"{self.simulation.seed} http {machine.node} life {machine.lives}")
        services = services_of(broker, rng)
        limits = replace(services.limits, heartbeat_ms=self.odds.heartbeat_ms)
        services = replace(services, limits=limits, allowed_hosts=frozenset({ALL}))
        boundary = self._boundaries[machine] = Boundary(services)
        listener = HttpListener(boundary, shutdown_timeout_s=STOP_S)
        await listener.start(f"b{machine.node}", 80)
        return listener

    def started(self, machine: Machine) -> None:
        """A machine is on, though nobody listens yet."""
        self.streams.powered(f"b{machine.node}")

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """A process is gone."""
        self._boundaries.pop(machine, None)
        self.streams.process_ended(f"b{machine.node}", process, silently=silently)

    def _accept(self, host: str, process: Process) -> Tap:
        return self.judge.wire(self._machines[host], process)

    # Clients.

    def guests(self) -> list[Guest]:
        """Those of this run."""
        partitions = self.simulation.odds.partitions
        odds = self.odds
        guests: list[Guest] = [ShippedProducer(self, f"h{number}") for number in range(odds.producers)]
        guests += [ShippedReader(self, f"r{number}", number % partitions) for number in range(odds.readers)]
        kinds: dict[str, Callable[[HttpSide, str], Guest]] = {
            "json producer": JsonProducer,
            "burst producer": BurstProducer,
            "json reader": partial(JsonReader, partition=partitions - 1),
            "event reader": partial(EventReader, partition=0),
        }
        guests += [kinds[kind](self, f"{kind[0]}{number}") for number, kind in enumerate(odds.raw)]
        return guests

    def begin(self) -> list[asyncio.Task[None]]:
        """Let all clients run; the tasks end when nobody produces any more."""
        loop = self.simulation.loop
        loop.start_in(Guest(self, "trouble").process, self._trouble())
        return [loop.start_in(guest.process, guest.live()) for guest in self.guests()]

    async def _trouble(self) -> None:
        """Hosts fall silent for their clients, or break all their connections."""
        while True:
            await asyncio.sleep(self._rng.expovariate(1 / self.odds.trouble_s))
            if self.streams.is_calm:
                return
            host = self._rng.choice(list(self._machines))
            if self._rng.random() < 0.5:
                self.streams.silence(host, self._rng.uniform(0.1, 3.0))
            else:
                self.streams.reset_all(host)

    # The end.

    async def move_leaders(self) -> None:
        """Every partition gets another leader once more, while all brokers work: clients must follow."""
        for target in self.simulation.judged:
            with contextlib.suppress(RaftlogError):
                await self.simulation.machines[0].call(partial(_transfer, target))

    async def probe(self) -> None:
        """What must hold of every broker once nothing goes wrong any more."""
        prober = Prober(self)
        await self.simulation.loop.start_in(prober.process, prober.live())

    def leftovers(self, machine: Machine) -> Iterator[tuple[str, int]]:
        """What a broker's HTTP side holds though no client is there."""
        boundary = self._boundaries.get(machine)
        if boundary is not None:
            yield "bytes of HTTP bodies", boundary.admission.bodies.total
            yield "bodies' clients", len(boundary.admission.bodies._of_client)
            yield "parked HTTP requests", boundary.admission.parked.total
            yield "watched HTTP requests", len(boundary.hang_ups)
            yield "lanes of shared batches", len(boundary._gatherer._lanes)
        ends = [end for end in self.streams.open if end.is_server and end.process is machine.process]
        yield "HTTP connections", len(ends)


async def _transfer(target: TopicPartition, broker: Broker) -> None:
    await broker.admin.transfer_leadership(target, None, TRANSFER_MS)
