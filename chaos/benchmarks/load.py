"""The closed loop that loads any system: so many requests in flight, each with one batch.

Decides: how throughput and latency are measured. Leaves to others: how a batch is sent
(``Connection``) and how servers are started (``System``).
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

RETAINED_BYTES: Final = 256 << 20  # of a stream: every system deletes what is older, so the disk stays small
SEGMENT_BYTES: Final = 32 << 20


class Connection(Protocol):
    """One client's connection to one stream (a partition, a NATS stream, …)."""

    async def send(self) -> None:
        """Send one prebuilt batch; return once it is acknowledged."""

    async def close(self) -> None:
        """Idempotent."""


class Reader(Protocol):
    """One consumer of one stream."""

    async def read(self) -> tuple[int, int]:
        """Wait for what comes next: how many records and bytes came."""

    async def close(self) -> None:
        """Idempotent."""


class System(Protocol):
    """A system under load: three nodes on this machine."""

    @property
    def name(self) -> str:
        """As the report calls it, with the settings that matter."""

    @property
    def pids(self) -> list[int]:
        """Process ids of its nodes."""

    async def start(self, streams: int) -> None:
        """Start the nodes and create the streams, replication factor 3."""

    async def connect(self, stream: int, records: int, record_bytes: int) -> Connection:
        """A connection whose ``send`` sends a batch of that many records of that size."""

    async def stop(self) -> None:
        """End every process that was started."""


@runtime_checkable
class ReadableSystem(System, Protocol):
    """One that can be read too."""

    async def follow(self, stream: int, *, from_start: bool) -> Reader:
        """A consumer that waits at the stream's end, or reads it from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One shape of load."""

    records: int  # a batch
    record_bytes: int
    streams: int
    in_flight: int  # requests per stream
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one round of load showed. Latencies are of one request, in milliseconds."""

    records_per_s: float
    p50_ms: float
    p99_ms: float
    requests: int


async def run(system: System, load: Load) -> Measured:
    """One round: connect, load for ``load.seconds``, count what was acknowledged in that time."""
    connections = [
        await system.connect(stream, load.records, load.record_bytes)
        for stream in range(load.streams)
        for _ in range(load.in_flight)
    ]
    try:
        for connection in connections:
            await connection.send()  # everybody has spoken once before the clock runs
        latencies: list[float] = []
        began = time.perf_counter()
        until = began + load.seconds
        await asyncio.gather(*(_loop(connection, until, latencies) for connection in connections))
        took = time.perf_counter() - began
    finally:
        for connection in connections:
            await connection.close()
    return measured(latencies, records=len(latencies) * load.records, took_s=took)


def measured(latencies: list[float], *, records: int, took_s: float) -> Measured:
    """The figures of one round; latencies in seconds."""
    latencies.sort()
    return Measured(
        records_per_s=records / took_s,
        p50_ms=percentile(latencies, 50) * 1000,
        p99_ms=percentile(latencies, 99) * 1000,
        requests=len(latencies),
    )


def percentile(rising: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed."""
    return rising[min(len(rising) - 1, len(rising) * percent // 100)]


async def _loop(connection: Connection, until: float, latencies: list[float]) -> None:
    while (began := time.perf_counter()) < until:
        await connection.send()
        latencies.append(time.perf_counter() - began)


def median(rounds: Sequence[Measured]) -> Measured:
    """The median of each figure over the rounds."""
    return Measured(
        records_per_s=statistics.median(m.records_per_s for m in rounds),
        p50_ms=statistics.median(m.p50_ms for m in rounds),
        p99_ms=statistics.median(m.p99_ms for m in rounds),
        requests=int(statistics.median(m.requests for m in rounds)),
    )
