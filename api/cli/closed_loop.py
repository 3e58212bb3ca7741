"""Runs a closed loop of load: a number of connections, each with at most one unanswered request.

Decides: how throughput and latency are measured. Leaves to others: the contents of a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Connection(Protocol):
    """One client's connection to one stream of records (a partition, a NATS stream, ...)."""

    async def send(self) -> None:
        """Send one prebuilt batch; return once it is acknowledged."""

    async def close(self) -> None:
        """Close the connection; may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The throughput and latency of one round of load. Latencies are per request, in milliseconds."""

    records_per_s: float
    p50_ms: float
    p99_ms: float
    requests: int


async def run(
    connections: Sequence[Connection], *, records: int, seconds: float, requests_max: int | None = None
) -> Measured:
    """Send requests for ``seconds``, or until ``requests_max`` requests are acknowledged. Each request has
    ``records`` records.
    """
    for connection in connections:
        await connection.send()  # each connection is warmed up before the clock starts
    latencies: list[float] = []
    began = time.perf_counter()
    left = iter(range(requests_max)) if requests_max is not None else None

    async def loop(connection: Connection) -> None:
        while (sent := time.perf_counter()) < began + seconds:
            if left is not None and next(left, None) is None:
                return
            await connection.send()
            latencies.append(time.perf_counter() - sent)

    await asyncio.gather(*map(loop, connections))
    took_s = time.perf_counter() - began
    return measured(latencies, records=len(latencies) * records, took_s=took_s)


def measured(latencies: list[float], *, records: int, took_s: float) -> Measured:
    """Compute throughput and latency percentiles of one round; ``latencies`` are in seconds."""
    latencies.sort()
    return Measured(
        records_per_s=records / took_s,
        p50_ms=percentile(latencies, 50) * 1000,
        p99_ms=percentile(latencies, 99) * 1000,
        requests=len(latencies),
    )


def percentile(rising: Sequence[float], percent: int) -> float:
    """Return the least value that at least ``percent`` of the values do not exceed; 0 without values."""
    return 0.0 if not rising else rising[min(len(rising) - 1, len(rising) * percent // 100)]
