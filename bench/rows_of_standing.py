"""Measures two properties of clusters: the cost of idle partitions, and the duration of a failover."""

from __future__ import annotations

import asyncio
import itertools
import json
import time

from api.cli import raw_http
from api.cli.closed_loop import percentile
from bench import processes
from bench.raftlog_system import TOPIC, RaftlogSystem
from bench.report import Floor, Section, table
from bench.suite import Bench
from raftlog.wire import media_types, records

PARTITIONS = 1000
QUIESCENT_S = 30.0  # after the last election: much longer than the quiet time of a group
FAILOVERS = 10


async def idle(bench: Bench) -> Section:
    """Measure the cost of a thousand idle partitions."""
    partitions = 200 if bench.is_quick else PARTITIONS
    observed_s = 5.0 if bench.is_quick else 20.0
    section = Section(
        "Idle partitions",
        f"{partitions} unused partitions with three replicas: the CPU of each broker over {observed_s:.0f} s "
        "after the partitions have become quiescent, with the default settings. The memory of a broker is "
        "what no other process shares, before the partitions are there, and what each of them adds.",
    )
    system = RaftlogSystem(bench.directory / "idle", environment={})
    try:
        await system.start(1)
        await asyncio.sleep(2)
        before = [processes.private_bytes(pid) for pid in system.pids]
        await system.create("idle", partitions)
        await asyncio.sleep(QUIESCENT_S)
        after = [processes.private_bytes(pid) for pid in system.pids]
        cpu = [processes.cpu_s(pid) for pid in system.pids]
        await asyncio.sleep(observed_s)
        used = [
            100 * (processes.cpu_s(pid) - b) / observed_s for pid, b in zip(system.pids, cpu, strict=True)
        ]
    finally:
        await system.stop()
    growth = [(a - b) / 1024 / partitions for a, b in zip(after, before, strict=True)]
    rows = [
        [f"broker {number}", f"{percent:.1f} %", f"{empty / 2**20:.0f} MB", f"{kilobytes:.1f} KB"]
        for number, (percent, empty, kilobytes) in enumerate(zip(used, before, growth, strict=True), 1)
    ]
    section.tables.append(table(["", "CPU, of one core", "memory", "memory per partition"], rows))
    what = f"CPU of a broker with {partitions} idle partitions"
    section.floors.append(Floor(what, max(used), 2, " %", is_upper=True))
    section.floors.append(Floor("memory of an idle broker", max(before) / 2**20, 60, " MB", is_upper=True))
    return section


async def failover(bench: Bench) -> Section:
    """Measure how long a client of another broker waits after ``kill -9`` of a leader."""
    trials = 3 if bench.is_quick else FAILOVERS
    section = Section(
        "Failover",
        f"A client writes one record at a time through a broker that does not lead the partition, and "
        f"retries a failed write at once. The leader is killed with `kill -9`, {trials} times. The gap is "
        "the time from the last acknowledgement before the kill to the first one after it.",
    )
    gaps: list[float] = []
    system = RaftlogSystem(bench.directory / "failover")
    try:
        await system.start(1)
        for number in range(trials):
            gaps.append(await _failover_once(system))
            bench.say(f"failover {number + 1} of {trials}: {gaps[-1]:.2f} s")
    finally:
        await system.stop()
    gaps.sort()
    row = [f"{percentile(gaps, 50):.2f} s", f"{percentile(gaps, 99):.2f} s", f"{gaps[0]:.2f} s"]
    section.tables.append(table(["p50", "p99", "minimum"], [row]))
    return section


async def _failover_once(system: RaftlogSystem) -> float:
    cluster = system.cluster
    leader = await asyncio.to_thread(cluster.leader, TOPIC, 0)
    url = cluster.url(next(broker for broker in cluster.running if broker != leader))
    path = f"{records.PRODUCE_TO_PARTITION.at(topic=TOPIC, partition=0)}?timeout=5s"
    request = raw_http.post(url, path, media_types.JSON, json.dumps({"records": [{"value": "x"}]}).encode())
    acknowledged: list[float] = []
    writing = asyncio.create_task(_write(url, request, acknowledged))
    try:
        await asyncio.sleep(0.5)
        killed_at = time.perf_counter()
        await asyncio.to_thread(cluster.kill, leader)
        for _ in range(20):
            await asyncio.sleep(1.5)  # a second gap would count too
            if acknowledged and acknowledged[-1] > killed_at + 1:
                break
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await asyncio.to_thread(cluster.start, leader)
    await asyncio.sleep(1)
    return max(later - earlier for earlier, later in itertools.pairwise(acknowledged))


async def _write(url: str, request: bytes, acknowledged: list[float]) -> None:
    connection = await raw_http.connect(url, request)
    try:
        while True:
            try:
                await connection.send()
                acknowledged.append(time.perf_counter())
            except RuntimeError:
                await asyncio.sleep(0.005)
    finally:
        await connection.close()
