"""The environment of a client: time, randomness and connections, real or simulated."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from raftlog.clock import Clock, SystemClock

KEEPALIVE_S = 60.0  # less than the idle timeout of brokers, so that they do not close first


def tcp_connector() -> aiohttp.BaseConnector:
    """A pool of real connections, made on demand."""
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of one client. ``connector`` is called once, on the loop that uses it."""

    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    connector: Callable[[], aiohttp.BaseConnector] = tcp_connector
