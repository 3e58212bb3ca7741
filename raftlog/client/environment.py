"""The environment of a client: time, randomness, connections and threads, real or simulated."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp.abc import ResolveResult

from raftlog.client.portal import Portal
from raftlog.clock import Clock, SystemClock

KEEPALIVE_S = 60.0  # less than the idle timeout of brokers, so that they do not close first


class _Resolver(aiohttp.ThreadedResolver):
    """Resolves host names also after the end of the main thread, when executors take no more work.

    Buffered records are still sent at that time, perhaps to a broker without an open connection.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a host name to addresses; see ``AbstractResolver``."""
        try:
            return await super().resolve(host, port, family)
        except RuntimeError:
            kind, flags = socket.SOCK_STREAM, socket.AI_ADDRCONFIG
            found = socket.getaddrinfo(host, port, type=kind, family=family, flags=flags)  # on this thread
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=port,
                    family=of_address,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for of_address, _, protocol, _, address in found
            ]


def tcp_connector() -> aiohttp.BaseConnector:
    """Create a pool of TCP connections, which are made on demand."""
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S, resolver=_Resolver())


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The time, randomness, connections and threads that one client uses.

    ``connector`` creates a connection pool, once on each event loop that makes requests. ``portal`` creates
    the event loop of the consumers.
    """

    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    connector: Callable[[], aiohttp.BaseConnector] = tcp_connector
    portal: Callable[[], Portal] = Portal
