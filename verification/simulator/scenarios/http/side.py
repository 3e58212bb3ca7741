"""HTTP in a run of the simulator: the listeners of its brokers, and the checker of their responses.

Decides: how ``api`` is connected to the simulated loop. Leaves to others: the clients (``clients``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from api.app import RequestPipeline
from api.connections.http_connections import HttpConnections
from api.http.access import ALL
from broker.broker import Broker
from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.listener import Listener
from broker.process.descriptors import CONNECTIONS_MAX
from broker.serving import services_of
from verification.simulator.event_loop import Process
from verification.simulator.machine import Machine
from verification.simulator.scenarios.http.checker import Checker
from verification.simulator.scenarios.http.odds import HttpOdds
from verification.simulator.scenarios.http.streams import StreamNetwork
from verification.simulator.scenarios.http.transport import Tap
from verification.simulator.simulated_cluster import SimulatedCluster

STOP_S: Final = 2.0
TRANSFER_MS: Final = 2000


class HttpSide:
    """The HTTP listeners of one run, and the checker of their responses."""

    def __init__(self, cluster: SimulatedCluster, odds: HttpOdds) -> None:
        self.cluster = cluster
        self.odds = odds
        self.streams = StreamNetwork(cluster.loop, cluster.rng("streams"), odds.streams)
        self.checker = Checker(cluster)
        self.known = self.checker.known
        self._machines: dict[str, Machine] = {f"b{one.node}": one for one in cluster.machines}
        self._pipelines: dict[Machine, RequestPipeline] = {}
        cluster.loop.listen = self.streams.listen
        self.streams.on_accept = self._accept
        self.streams.on_piece = lambda size: cluster.trace.frame(size.to_bytes(4))

    @property
    def hosts(self) -> list[str]:
        """The host names of the brokers."""
        return list(self._machines)

    # Brokers.

    async def serve(self, machine: Machine, broker: Broker) -> Listener:
        """Listen on a broker's host, as ``api.server`` does when a broker has started."""
        rng = random.Random(f"{self.cluster.seed} http {machine.node} life {machine.incarnation}")
        services = services_of(broker, rng)
        limits = replace(services.limits, heartbeat_ms=self.odds.heartbeat_ms)
        services = replace(services, limits=limits, allowed_hosts=frozenset({ALL}))
        pipeline = self._pipelines[machine] = RequestPipeline(services)
        limit = ConnectionLimit("HTTP", CONNECTIONS_MAX, None, pipeline.metrics)
        listener = Listener(HttpConnections(pipeline, limit), limit, shutdown_timeout_s=STOP_S)
        await listener.start(f"b{machine.node}", 80)
        return listener

    def started(self, machine: Machine) -> None:
        """Add the host of a machine that is on to the network, without a listener yet."""
        self.streams.powered(f"b{machine.node}")

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        self._pipelines.pop(machine, None)
        self.streams.process_ended(f"b{machine.node}", process, silently=silently)

    def _accept(self, host: str, process: Process) -> Tap:
        return self.checker.wire(self._machines[host], process)

    def held_resources(self, machine: Machine) -> Iterator[tuple[str, int]]:
        """Return the resources that a broker's HTTP server holds; without clients it must hold none."""
        pipeline = self._pipelines.get(machine)
        if pipeline is not None:
            yield "bytes of HTTP bodies", pipeline.admission.bodies.total
            yield "bodies' clients", len(pipeline.admission.bodies._of_client)
            yield "parked HTTP requests", pipeline.admission.parked.total
            yield "watched HTTP requests", len(pipeline.disconnect_watcher)
            yield "queues of shared batches", len(pipeline._batcher._queues)
        ends = [end for end in self.streams.open if end.is_server and end.process is machine.process]
        yield "HTTP connections", len(ends)
