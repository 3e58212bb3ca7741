"""The environment of a client: time, randomness, connections and threads, real or simulated."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp

from raftlog.client.portal import Portal
from raftlog.clock import Clock, SystemClock

KEEPALIVE_S = 60.0  # less than the idle timeout of brokers, so that they do not close first


def tcp_connector() -> aiohttp.BaseConnector:
    """A pool of real connections, made on demand."""
    return aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of one client.

    ``connector`` is called on each loop that makes requests, ``portal`` for the loop of the consumers.
    """

    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    connector: Callable[[], aiohttp.BaseConnector] = tcp_connector
    portal: Callable[[], Portal] = Portal
