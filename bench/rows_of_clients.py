"""Measures client interfaces: plain HTTP with JSON, and the Python client."""

from __future__ import annotations

import json
import statistics
import time

from api.cli import raw_http
from api.cli.closed_loop import Measured, measured
from api.cli.raw_http import HttpConnection
from bench.load import Load, run
from bench.raftlog_system import TOPIC, RaftlogSystem
from bench.report import Section, table
from bench.suite import STREAMS, Bench
from raftlog.aio import Client
from raftlog.wire import media_types
from raftlog.wire import records as record_operations

CONNECTIONS = 64


class _JsonOver:
    """The system raftlog with plain HTTP requests to any broker, which name a topic but no partition."""

    def __init__(self, system: RaftlogSystem) -> None:
        self.name = system.name
        self.pids = system.pids
        self._system = system
        self._connected = 0

    async def start(self, streams: int) -> None:
        """Return at once: the system is already running."""

    async def stop(self) -> None:
        """Do nothing: the caller stops the system."""

    async def connect(self, stream: int, records: int, record_bytes: int) -> HttpConnection:
        """A connection to the next broker."""
        urls = self._system.cluster.urls
        url = urls[self._connected % len(urls)]
        self._connected += 1
        body = json.dumps({"records": [{"value": "x" * record_bytes}] * records}).encode()
        return await raw_http.connect(
            url, raw_http.post(url, record_operations.PRODUCE.at(topic=TOPIC), media_types.JSON, body)
        )


async def http_json(bench: Bench) -> Section:
    """Measure JSON requests to any broker."""
    section = Section(
        "HTTP with JSON",
        f"{CONNECTIONS} connections spread over the three brokers POST records of 100 B to "
        f"`{record_operations.PRODUCE.at(topic=TOPIC)}`; a broker that does not lead the partition forwards "
        "them to the leader.",
    )
    rows = []
    for records in (1, 100):
        load = Load(
            records=records, record_bytes=100, streams=1, in_flight=CONNECTIONS, seconds=bench.seconds
        )
        found = (await bench.in_turn([_JsonOver(bench.raftlog)], load))[bench.raftlog.name]
        rows.append(
            [
                f"{records} record{'s' if records > 1 else ''} per request",
                f"{found.records_per_s / records:,.0f}",
                f"{found.records_per_s:,.0f}",
                f"{found.p50_ms:.1f} ms",
                f"{found.p99_ms:.1f} ms",
            ]
        )
    section.tables.append(table(["", "requests/s", "records/s", "p50", "p99"], rows))
    return section


async def python_client(bench: Bench) -> Section:
    """Measure the Python client, which builds, partitions and batches records."""
    section = Section(
        "Python client",
        f"One `raftlog.aio` producer with its defaults sends records one by one to {STREAMS} partitions and "
        "waits for all receipts; the time includes building the batches. For comparison, "
        "prebuilt batches are sent over raw connections in alternate rounds.",
    )
    rows = []
    for record_bytes in (1024, 100):
        name = f"records of {record_bytes} B"
        bench.say(f"client, {name}")
        load = Load(
            records=102_400 // record_bytes // 100 * 100 or 100,
            record_bytes=record_bytes,
            streams=STREAMS,
            in_flight=4,
            seconds=bench.seconds,
        )
        built: list[float] = []
        prebuilt: list[float] = []
        for _ in range(bench.rounds):
            built.append((await _send(bench, record_bytes)).records_per_s)
            prebuilt.append((await run(bench.raftlog, load)).records_per_s)
        ours, raw = statistics.median(built), statistics.median(prebuilt)
        rows.append([name, f"{ours:,.0f}", f"{raw:,.0f}", f"{ours / raw:.2f}"])
    section.tables.append(table(["", "client, records/s", "prebuilt, records/s", "ratio"], rows))
    return section


async def _send(bench: Bench, record_bytes: int) -> Measured:
    value = b"x" * record_bytes
    sent = 0
    async with Client(bench.raftlog.cluster.bootstrap) as client, client.producer(TOPIC) as producer:
        await (await producer.send(value))  # metadata and connections exist
        began = time.perf_counter()
        while time.perf_counter() < began + bench.seconds:
            for _ in range(500):
                await producer.send(value)
            sent += 500
        await producer.flush()
        took_s = time.perf_counter() - began
    return measured([took_s / sent], records=sent, took_s=took_s)
