"""Measures brokers with prebuilt batches: produce, one record at a time, end to end, consume."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import statistics
import tempfile
import threading
import time

from api.cli.closed_loop import Measured, measured
from bench import processes
from bench.load import Load, ReadableSystem, Reader, System, run
from bench.report import Floor, Section, latency_table, table, throughput_table
from bench.suite import STREAMS, Bench

BASELINE_SECONDS = 1.0  # pysyncobj keeps its log in memory


async def produce(bench: Bench) -> Section:
    """Measure batches that are acknowledged once a majority has them."""
    section = Section(
        "Produce",
        "Prebuilt batches over raw connections; four requests in flight for each stream. raftlog, NATS with "
        "`sync_interval: always`, Kafka with `flush.messages=1` and the ceiling fsync records before they "
        "acknowledge them. NATS and Kafka with default settings, and pysyncobj, do not.",
    )
    figures: dict[str, dict[str, Measured]] = {}
    shapes = ((100, 1024, 1), (100, 1024, STREAMS), (400, 100, 1), (400, 100, STREAMS))
    for records, record_bytes, streams in shapes:
        name = f"{records} x {_size(record_bytes)}, {streams} stream{'s' if streams > 1 else ''}"
        bench.say(f"produce {name}")
        load = Load(
            records=records,
            record_bytes=record_bytes,
            streams=streams,
            in_flight=4,
            seconds=bench.seconds,
        )
        figures[name] = await bench.in_turn([bench.raftlog, *bench.peers.values(), bench.ceiling], load)
    if bench.baseline is not None:
        load = Load(records=10, record_bytes=1024, streams=1, in_flight=4, seconds=BASELINE_SECONDS)
        figures["10 x 1 KB, 1 stream"] = await bench.in_turn([bench.raftlog, bench.baseline], load)
    section.tables.append(throughput_table(figures, bench.raftlog.name))
    best = figures[f"100 x 1 KB, {STREAMS} streams"]
    ours = best[bench.raftlog.name].records_per_s
    section.floors.append(Floor("records/s of 1 KB in batches of 100, 4 partitions", ours, 150_000))
    if (nats := _of(bench, best, "nats_always")) is not None:
        ratio = ours / nats.records_per_s
        section.floors.append(Floor("the same ÷ NATS `sync_interval: always`", ratio, 2, "x"))
    return section


async def synchronous(bench: Bench) -> Section:
    """Measure one record of 1 KB at a time."""
    section = Section(
        "One record at a time",
        "One connection sends one record of 1 KB and waits for its acknowledgement before it sends the next.",
    )
    load = Load(records=1, record_bytes=1024, streams=1, in_flight=1, seconds=bench.seconds)
    systems: list[System] = [bench.raftlog, *bench.peers.values(), bench.ceiling]
    if bench.baseline is not None:
        systems.append(bench.baseline)
    found = await bench.in_turn(systems, load)
    section.tables.append(latency_table(found, bench.raftlog.name))
    section.floors += _latency_floor(bench, found, "one synchronous record, p50 ÷ NATS `always`")
    return section


async def end_to_end(bench: Bench) -> Section:
    """Measure the time from a producer to a waiting consumer."""
    section = Section(
        "End to end",
        "The time from sending a record of 1 KB until a waiting consumer has received it. raftlog and Kafka "
        "use a long poll, NATS a push consumer.",
    )
    one = functools.partial(_end_to_end_round, bench.seconds)
    found = await bench.rounds_of(_readable(bench), one)
    section.tables.append(latency_table(found, bench.raftlog.name))
    return section


async def consume(bench: Bench) -> Section:
    """Measure reads of existing records at the maximum rate."""
    wanted_bytes = (32 if bench.is_quick else 128) << 20
    section = Section(
        "Consume",
        f"Reads of batches of 100 x 1 KB from the page cache, {wanted_bytes >> 20} MB of each partition. The "
        "client parses only headers. The CPU time is the sum of all three brokers.",
    )
    for system in _readable(bench):
        await _fill(system, wanted_bytes)
    rows = []
    copies: list[tuple[float, float]] = []
    streams, costs = 1, dict[str, list[float]]()

    async def one(system: System) -> Measured:
        if system is bench.raftlog:
            copies.append(_bare_copy(wanted_bytes))  # in turn, as the speed of the machine varies
        return await _consume_round(streams, wanted_bytes, costs, system)

    for streams in (1, STREAMS):
        costs = {}
        found = await bench.rounds_of(_readable(bench), one)
        for name, figures in found.items():
            rate, cost = figures.records_per_s, statistics.median(costs[name])
            rows.append([name, str(streams), f"{rate / 1e6:,.0f} MB/s", f"{cost:.2f} s"])
    rate, cost = (statistics.median(each) for each in zip(*copies, strict=True))
    rows.append(["`pread` + `sendall`", "1", f"{rate / 1e6:,.0f} MB/s", f"{cost:.2f} s"])
    section.tables.append(table(["system", "partitions", "throughput", "CPU per GB"], rows))
    return section


async def _end_to_end_round(seconds: float, system: System) -> Measured:
    assert isinstance(system, ReadableSystem)
    connection = await system.connect(0, 1, 1024)
    reader = await system.follow(0, from_start=False)
    latencies: list[float] = []
    try:
        began = time.perf_counter()
        while (sent := time.perf_counter()) < began + seconds:
            reading = asyncio.ensure_future(_read_one(reader))
            await asyncio.sleep(0)  # the consumer waits before the record is sent
            acknowledged = asyncio.ensure_future(connection.send())
            await asyncio.wait_for(reading, 10)
            latencies.append(time.perf_counter() - sent)
            await acknowledged
        return measured(latencies, records=len(latencies), took_s=time.perf_counter() - began)
    finally:
        await reader.close()
        await connection.close()


async def _read_one(reader: Reader) -> None:
    while (await reader.read())[0] == 0:
        pass


async def _fill(system: System, wanted_bytes: int) -> None:
    """Write so many records to each stream that a reader does not reach the end during a round."""
    load = Load(records=100, record_bytes=1024, streams=STREAMS, in_flight=2, seconds=1)
    written = 0.0
    for _ in range(120):
        if written > 1.2 * wanted_bytes:
            return
        written += (await run(system, load)).requests * 100 * 1024 / STREAMS


async def _consume_round(
    streams: int, wanted_bytes: int, costs: dict[str, list[float]], system: System
) -> Measured:
    """Measure the throughput of readers, in bytes per second. Adds the CPU seconds per GB to ``costs``."""
    assert isinstance(system, ReadableSystem)
    readers = [await system.follow(stream, from_start=True) for stream in range(streams)]
    try:
        cpu_s, began = processes.cpu_s_of(system.pids), time.perf_counter()
        got = await asyncio.gather(*(_read_bytes(reader, wanted_bytes) for reader in readers))
        took_s = time.perf_counter() - began
        spent_s = processes.cpu_s_of(system.pids) - cpu_s
    finally:
        for reader in readers:
            await reader.close()
    costs.setdefault(system.name, []).append(spent_s / (sum(got) / 1e9))
    return measured([took_s], records=sum(got), took_s=took_s)


async def _read_bytes(reader: Reader, wanted_bytes: int) -> int:
    got = 0
    async with asyncio.timeout(60):
        while got < wanted_bytes:
            got += (await reader.read())[1]
    return got


def _bare_copy(size_bytes: int) -> tuple[float, float]:
    """Measure the simplest copy from a file to a socket: bytes per second, and CPU seconds per GB."""
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as file:
        file.write(bytes(size_bytes))
        file.flush()
        spent: list[float] = []

        def send() -> None:
            before = time.thread_time()
            for at in range(0, size_bytes, 1 << 20):
                ours.sendall(os.pread(file.fileno(), 1 << 20, at))
            spent.append(time.thread_time() - before)

        sender = threading.Thread(target=send)
        began = time.perf_counter()
        sender.start()
        memory = bytearray(1 << 20)
        left = size_bytes
        while left:
            left -= theirs.recv_into(memory)
        sender.join()
        return size_bytes / (time.perf_counter() - began), spent[0] / (size_bytes / 1e9)


def _readable(bench: Bench) -> list[System]:
    chosen = [bench.peers[key] for key in ("nats_always", "kafka") if key in bench.peers]
    return [bench.raftlog, *chosen]


def _latency_floor(bench: Bench, found: dict[str, Measured], what: str) -> list[Floor]:
    nats = _of(bench, found, "nats_always")
    if nats is None:
        return []
    return [Floor(what, found[bench.raftlog.name].p50_ms / nats.p50_ms, 2, "x", is_upper=True)]


def _of(bench: Bench, found: dict[str, Measured], key: str) -> Measured | None:
    return found.get(bench.peers[key].name) if key in bench.peers else None


def _size(size_bytes: int) -> str:
    return f"{size_bytes // 1024} KB" if size_bytes >= 1024 else f"{size_bytes} B"
