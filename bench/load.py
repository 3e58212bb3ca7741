"""The interface of a system under load, and one round of load.

Decides: the parameters of a load. Leaves to others: how throughput and latency are measured
(``closed_loop``), how a batch is sent (``Connection``) and how servers are started (``System``).
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from api.cli import closed_loop
from api.cli.closed_loop import Connection, Measured

RETAINED_BYTES: Final = 256 << 20  # of a stream: every system deletes older records, to use little disk
SEGMENT_BYTES: Final = 32 << 20
FIRST_TRIES: Final = 50


class Reader(Protocol):
    """One consumer of one stream."""

    async def read(self) -> tuple[int, int]:
        """Wait for the next records; return the numbers of records and bytes."""

    async def close(self) -> None:
        """Close the consumer; closing twice is harmless."""


class System(Protocol):
    """A system under load: three nodes on this machine."""

    @property
    def name(self) -> str:
        """The name of the system in the report, with its relevant settings."""

    @property
    def pids(self) -> list[int]:
        """The process ids of all nodes."""

    async def start(self, streams: int) -> None:
        """Start the nodes and create ``streams`` streams with replication factor 3."""

    async def connect(self, stream: int, records: int, record_bytes: int) -> Connection:
        """A connection whose ``send`` sends a batch of ``records`` records of ``record_bytes`` bytes."""

    async def stop(self) -> None:
        """Stop every started process."""


@runtime_checkable
class ReadableSystem(System, Protocol):
    """A system with consumers."""

    async def follow(self, stream: int, *, from_start: bool) -> Reader:
        """A consumer that waits at the end of a stream, or reads the stream from its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The parameters of a load: sizes of batches, number of streams and of batches in flight, duration."""

    records: int  # of a batch
    record_bytes: int
    streams: int
    in_flight: int  # requests per stream
    seconds: float


async def run(system: System, load: Load) -> Measured:
    """Run one round: connect, load for ``load.seconds``, count the acknowledged records of that time."""
    connections = [
        await system.connect(stream, load.records, load.record_bytes)
        for stream in range(load.streams)
        for _ in range(load.in_flight)
    ]
    try:
        for connection in connections:
            await _first(connection)
        return await closed_loop.run(connections, records=load.records, seconds=load.seconds)
    finally:
        for connection in connections:
            await connection.close()


async def _first(connection: Connection) -> None:
    """Send the first batch, with retries: a system that has just started or was idle may refuse it."""
    for _ in range(FIRST_TRIES):
        try:
            return await connection.send()
        except RuntimeError:
            await asyncio.sleep(0.2)
    await connection.send()


def median(rounds: Sequence[Measured]) -> Measured:
    """The median of each figure over the rounds."""
    return Measured(
        records_per_s=statistics.median(m.records_per_s for m in rounds),
        p50_ms=statistics.median(m.p50_ms for m in rounds),
        p99_ms=statistics.median(m.p99_ms for m in rounds),
        requests=int(statistics.median(m.requests for m in rounds)),
    )
