"""What a client finds outside: time, chance and connections. The machine's own, or those of a simulator."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from raftlog.clock import Clock, SystemClock

KEEPALIVE_S = 60.0  # less than brokers keep an idle connection, so that they are not the first to close


def tcp_connector() -> aiohttp.BaseConnector:
    """A pool of real connections, made when they are needed."""
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One client's. ``connector`` is called once, on the loop that uses it."""

    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    connector: Callable[[], aiohttp.BaseConnector] = tcp_connector
