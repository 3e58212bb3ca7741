"""Measures consumer groups: the time of a join, commits of offsets, and the throughput of a consumer."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import defaultdict
from functools import partial

from api.cli import raw_http
from api.cli.closed_loop import Measured, measured
from bench import kafka_consumers
from bench.kafka import KafkaCluster
from bench.load import Load
from bench.raftlog_system import RaftlogSystem
from bench.report import Floor, Section, table
from bench.suite import Bench
from raftlog.aio import Client
from raftlog.client.consumer.faces import AsyncConsumer
from raftlog.wire import media_types

MEMBERS = 20
COMMITTERS = (64, 512)
READ_RECORDS = 200_000
JOINS = 5
VALUE = b"x" * 1024


async def join(bench: Bench) -> Section:
    """Measure a group whose twenty consumers start together."""
    trials = 2 if bench.is_quick else JOINS
    section = Section(
        "Joining a group",
        f"{MEMBERS} consumers of the Python client with their defaults join a new group at once, {trials} "
        f"times. The topic has {MEMBERS} partitions that get a record every 50 ms. The time is that from the "
        "start of the last consumer until each consumer has its first record.",
    )
    async with bench.brokers_alone(retained_bytes=-1) as system, Client(system.cluster.bootstrap) as client:
        await system.create("joined", MEMBERS)
        sending = asyncio.create_task(_send_all_the_time(client))
        try:
            took = sorted([await _join_once(client, f"join-{trial}") for trial in range(trials)])
        finally:
            sending.cancel()
    row = [f"{statistics.median(took):.2f} s", f"{took[-1]:.2f} s"]
    section.tables.append(table(["p50", "maximum"], [row]))
    what = f"join of {MEMBERS} consumers until their first records, p50"
    section.floors.append(Floor(what, statistics.median(took), 1.0, " s", is_upper=True))
    return section


async def _send_all_the_time(client: Client) -> None:
    async with client.producer("joined") as producer:
        while True:
            for number in range(MEMBERS):
                await producer.send(b"x", partition=number)
            await asyncio.sleep(0.05)


async def _join_once(client: Client, group: str) -> float:
    first: dict[int, float] = {}
    have_all = asyncio.Event()
    consumers = [client.consumer(group, "joined") for _ in range(MEMBERS)]
    began = time.perf_counter()
    reads = [asyncio.create_task(_read_on(*each, first, have_all)) for each in enumerate(consumers)]
    try:
        async with asyncio.timeout(120):
            await have_all.wait()
    finally:
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        await asyncio.gather(*(consumer.close() for consumer in consumers))
    return max(first.values()) - began


async def _read_on(
    number: int, consumer: AsyncConsumer, first: dict[int, float], have_all: asyncio.Event
) -> None:
    """Keep reading after the first record: a member that stopped would delay the rebalance."""
    async for _ in consumer.batches():
        first.setdefault(number, time.perf_counter())
        if len(first) == MEMBERS:
            have_all.set()


class _Committer:
    """raftlog as a system that takes commits of ``offsets`` offsets."""

    def __init__(self, system: RaftlogSystem, offsets: int) -> None:
        self.name = system.name
        self.pids = system.pids
        self._system = system
        self._offsets = offsets
        self._connected = 0

    async def start(self, streams: int) -> None:
        """Return at once: the system is already running."""

    async def stop(self) -> None:
        """Do nothing: the caller stops the system."""

    async def connect(self, stream: int, records: int, record_bytes: int) -> raw_http.HttpConnection:
        """A connection to the next broker, which commits for a new group."""
        urls = self._system.cluster.urls
        url = urls[self._connected % len(urls)]
        group = f"commits-{self._offsets}-{self._connected}"
        self._connected += 1
        rows = [{"topic": "committed", "partition": number, "offset": 0} for number in range(self._offsets)]
        body = json.dumps({"offsets": rows}).encode()
        request = raw_http.post(url, f"/v1/groups/{group}/offsets", media_types.JSON, body)
        return await raw_http.connect(url, b"PUT" + request.removeprefix(b"POST"))


async def commits(bench: Bench) -> Section:
    """Measure commits of one offset, and of many."""
    section = Section(
        "Commits of offsets",
        "Connections spread over the three brokers, each for a group of its own without members, send `PUT "
        "/v1/groups/{group}/offsets` and wait for the answer. Two of three requests are forwarded to the "
        "coordinator.",
    )
    rows = []
    for offsets, connections in ((1, COMMITTERS[0]), (1, COMMITTERS[1]), (100, COMMITTERS[0])):
        load = Load(records=offsets, record_bytes=0, streams=1, in_flight=connections, seconds=bench.seconds)
        async with bench.brokers_alone(retained_bytes=-1) as system:
            await system.create("committed", 100)
            found = (await bench.in_turn([_Committer(system, offsets)], load))[system.name]
        rate = found.records_per_s / offsets
        name = f"{offsets} offset{'s' if offsets > 1 else ''} per commit, {connections} connections"
        rows.append(
            [
                name,
                f"{rate:,.0f}",
                f"{found.records_per_s:,.0f}",
                f"{found.p50_ms:.1f} ms",
                f"{found.p99_ms:.1f} ms",
            ]
        )
        if connections == COMMITTERS[-1]:
            section.floors.append(Floor(f"commits/s of one offset, {connections} connections", rate, 5_000))
    section.tables.append(table(["", "commits/s", "offsets/s", "p50", "p99"], rows))
    return section


async def consumer(bench: Bench) -> Section:
    """Measure the client's consumer on existing records."""
    records = 20_000 if bench.is_quick else READ_RECORDS
    section = Section(
        "Consumer of a group",
        f"One asynchronous consumer with its defaults, alone in its group, takes {records:,} records of 1 KB "
        "with `batches`. The time runs from its first batch to its last one. For comparison, in alternate "
        "rounds, other Python clients do the same on Kafka.",
    )
    rows = []
    async with bench.kafka_alone("consumers") as kafka:
        for partitions in (10, 100):
            found = await _consumed(bench, kafka, partitions, records)
            rate = statistics.median(found["raftlog"])
            for name, rates in found.items():
                reached = statistics.median(rates)
                name = f"{partitions} partitions, {name}"
                rows.append([name, f"{reached:,.0f}", f"{min(rates):,.0f}", f"{rate / reached:.2f}x"])
            what = f"consumer, records/s of 1 KB, {partitions} partitions"
            section.floors.append(Floor(what, rate, 150_000))
    columns = ["", "records/s", "slowest round", "raftlog ÷ its records/s"]
    section.tables.append(table(columns, rows))
    return section


async def _consumed(
    bench: Bench, kafka: KafkaCluster | None, partitions: int, records: int
) -> dict[str, list[float]]:
    """The records per second of each client in each round."""
    topic, found = f"read-{partitions}", defaultdict[str, list[float]](list)
    async with bench.brokers_alone(retained_bytes=-1) as system, Client(system.cluster.bootstrap) as client:
        await system.create(topic, partitions)
        await _fill(client, topic, records)
        readers = {"raftlog": partial(_read, client, topic)}
        if kafka is not None:
            await kafka_consumers.fill(kafka, topic, partitions, [VALUE] * records)
            for name, read in kafka_consumers.READERS.items():
                readers[name] = partial(read, kafka, topic)
        for number in range(bench.rounds):
            for name, reader in readers.items():
                reached = await reader(f"{topic}-{name.split()[0]}-{number}", records)
                found[name].append(reached.records_per_s)
    return found


async def _fill(client: Client, topic: str, records: int) -> None:
    async with client.producer(topic, linger="20ms") as producer:
        for number in range(records):
            await producer.send(VALUE, key=str(number))
        await producer.flush()


async def _read(client: Client, topic: str, group: str, records: int) -> Measured:
    found, counted, began = 0, 0, 0.0
    async with client.consumer(group, topic) as reader:
        async for batch in reader.batches():
            found += len(batch)
            if began:
                counted += len(batch)
            else:
                began = time.perf_counter()
            if found >= records:
                break
        took_s = time.perf_counter() - began
    return measured([took_s / max(1, counted)], records=counted, took_s=took_s)
