"""Simulates TCP between clients and brokers: bytes arrive in order, late and in pieces, or never.

Decides: when bytes arrive, where they are split, how many bytes may be in flight between two programs, and
the effect of a dead process or machine on its connections. Leaves to others: the listening side
(``broker.listeners.listener``) and the dialling side (``connector``), both of which run as on a real event
loop.

- A killed process resets its connections, and dials are refused until a process listens again. - A machine
without power is silent: its clients wait. Once a process listens there again, old connections are reset. - A
silent host delays everything in both directions for a while, as retransmission does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from verification.simulator.event_loop import Process, SimulatedLoop
from verification.simulator.scenarios.http.odds import StreamOdds
from verification.simulator.scenarios.http.transport import StreamTransport, Tap

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


class Listener:
    """The listener that ``create_server`` returns."""

    def __init__(self, network: StreamNetwork, host: str, process: Process, factory: ProtocolFactory) -> None:
        self.process = process
        self.factory = factory
        self._network = network
        self._host = host

    def close(self) -> None:
        """Accept no more connections; existing connections continue."""
        self._network.unlisten(self._host, self)


class StreamNetwork:
    """All connections of a run. ``on_accept`` returns an observer for each accepted connection."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, odds: StreamOdds) -> None:
        self.loop = loop
        self.rng = rng
        self.odds = odds
        self.is_calm = False
        self.on_accept: Callable[[str, Process], Tap | None] = lambda host, process: None
        self.on_piece: Callable[[int], None] = lambda size: None
        self.open: dict[StreamTransport, None] = {}
        self._listeners: dict[str, Listener] = {}
        self._without_power: set[str] = set()
        self._silent_until: dict[str, float] = {}
        self._ports = 40_000

    # Hosts.

    def listen(self, host: str, process: Process, factory: ProtocolFactory) -> Listener:
        """Accept connections to a host for a process from now on."""
        listener = self._listeners[host] = Listener(self, host, process, factory)
        self.powered(host)
        return listener

    def unlisten(self, host: str, listener: Listener) -> None:
        """Refuse connections to a host."""
        if self._listeners.get(host) is listener:
            del self._listeners[host]

    def powered(self, host: str) -> None:
        """Note that a machine is on: packets for its earlier connections are reset."""
        self._without_power.discard(host)

    def process_ended(self, host: str, process: Process, *, silently: bool) -> None:
        """Note that a process has ended: its connections are reset, or with ``silently`` get no more
        packets.
        """
        self._listeners.pop(host, None)
        if silently:
            self._without_power.add(host)
        for transport in list(self.open):
            if transport.process is process:
                transport.vanish()
                if not silently and transport.peer is not None:
                    transport.peer.reset_soon(transport.delay())

    def silence(self, host: str, seconds: float) -> None:
        """Delay for some seconds all bytes that are sent from or to a host."""
        self._silent_until[host] = max(self._silent_until.get(host, 0.0), self.loop.now + seconds)

    def reset_all(self, host: str) -> None:
        """Break all connections of a host."""
        for transport in list(self.open):
            if transport.host == host and transport.is_server:
                transport.break_connection()

    def heal(self) -> None:
        """Heal the network: from now on packets are delayed only by the normal latency."""
        self.is_calm = True
        self._silent_until.clear()

    def has_power(self, host: str) -> bool:
        """True if a machine with this host name responds to packets, if only with a reset."""
        return host not in self._without_power

    def delay(self, host: str) -> float:
        """Draw the latency of a piece from or to a host, in seconds."""
        odds = self.odds
        taken = odds.latency_s if self.is_calm else odds.latency_s + odds.jitter_s * self.rng.random() ** 4
        return max(taken, self._silent_until.get(host, 0.0) - self.loop.now)

    # Dialling.

    async def connect(
        self, process: Process, host: str, factory: ProtocolFactory
    ) -> tuple[StreamTransport, asyncio.BaseProtocol]:
        """Connect a client to a host. Raises ``ConnectionRefusedError``; waits forever if the machine has no
        power.
        """
        await asyncio.sleep(self.delay(host))
        while host in self._without_power:
            await self._another_try()
        listener = self._listeners.get(host)
        if listener is None:
            await asyncio.sleep(self.delay(host))
            raise ConnectionRefusedError(111, f"{host} does not listen")
        self._ports += 1
        ours = StreamTransport(self, process, host, "client", self._ports)
        theirs = StreamTransport(self, listener.process, host, "client", self._ports, is_server=True)
        ours.peer, theirs.peer = theirs, ours
        self.open[ours] = self.open[theirs] = None
        theirs.tap = self.on_accept(host, listener.process)
        self.loop.later_in(listener.process, 0.0, theirs.begin, listener.factory)
        try:
            await asyncio.sleep(self.delay(host))
        except asyncio.CancelledError:
            ours.vanish()
            theirs.reset_soon(0.0)
            raise
        if ours.is_lost:  # reset meanwhile
            raise ConnectionResetError(104, f"{host} has reset the connection")
        return ours, ours.begin(factory)

    async def _another_try(self) -> None:
        """Wait until the SYN is sent again, as a kernel does."""
        await asyncio.sleep(1.0)
