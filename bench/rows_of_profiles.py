"""Measures the effect of the presets ``latency`` and ``throughput`` of producers, consumers and topics.

The presets take turns, since the speed of the machine varies. ``docs/profiles.md`` explains the figures.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from api.cli import closed_loop, raw_http
from api.cli.closed_loop import percentile
from bench import processes
from bench.raftlog_system import RaftlogSystem
from bench.report import Section, table
from bench.suite import STREAMS, Bench
from raftlog.aio import Client
from raftlog.client.consumer.faces import AsyncConsumer
from raftlog.client.producer import AsyncProducer
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch

PRESETS: Final = ("latency", None, "throughput")
SMALL: Final = b"x" * 100
BURST_RECORDS: Final = 30_000
BACKLOG_RECORDS: Final = 200_000
ALONE_RECORDS: Final = 50
FRESH_RECORDS: Final = 30
HANDLED_S: Final = 10e-6  # time that a consumer takes for a record of the backlog
MS: Final = 1_000.0
Figures = Mapping[str, float]
Presets = Mapping[str, Callable[[], Awaitable[Figures]]]


async def profiles(bench: Bench) -> Section:
    """Measure the presets of producers, consumers and topics."""
    section = Section(
        "Presets",
        "The presets `latency` and `throughput` and the defaults, in turns. Records have 100 B. Producers: a "
        f"burst of {BURST_RECORDS:,} records, and single records 10 ms apart. Consumers: a backlog of "
        "10 partitions; a new record of a partition while another one has a backlog whose records take "
        f"{HANDLED_S * 1e6:.0f} µs each; and records that come one by one, 1 ms apart. Topics: batches of "
        "400 records with zstd, and `acks=every` while a follower is stopped.",
    )
    async with bench.brokers_alone(retained_bytes=-1) as system, Client(system.cluster.bootstrap) as client:
        measures = (_of_producers(client, system), _of_consumers(client, system), _of_topics(system))
        for making in measures:
            measured = await making
            figures = await _in_turn(bench, measured)
            names = [*next(iter(figures.values()))]
            rows = [[preset, *(f"{found[name]:,.4g}" for name in names)] for preset, found in figures.items()]
            section.tables.append(table(["preset", *names], rows))
    return section


async def _in_turn(bench: Bench, presets: Presets) -> dict[str, Figures]:
    """Measure the presets in turn, in rounds; return the median of each figure over the rounds."""
    found: defaultdict[str, list[Figures]] = defaultdict(list)
    for _ in range(bench.rounds):
        for preset, measure in presets.items():
            found[preset].append(await measure())
    return {
        preset: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
        for preset, rounds in found.items()
    }


# Producers.


async def _of_producers(client: Client, system: RaftlogSystem) -> Presets:
    await system.create("produced", STREAMS)

    def measure(preset: str | None) -> Callable[[], Awaitable[Figures]]:
        async def one() -> Figures:
            async with client.producer("produced", preset=preset) as producer:
                alone_s = [await _alone(producer) for _ in range(ALONE_RECORDS)]
                used_s, began = processes.cpu_s_of(system.pids), time.perf_counter()
                for _ in range(BURST_RECORDS):
                    await producer.send(SMALL)
                await producer.flush()
                took_s = time.perf_counter() - began
            used_s = processes.cpu_s_of(system.pids) - used_s
            return {
                "burst, records/s": BURST_RECORDS / took_s,
                "brokers' CPU, µs per record": used_s / BURST_RECORDS * 1e6,
                "single record, p50, ms": percentile(sorted(alone_s), 50) * MS,
            }

        return one

    return {str(preset or "none"): measure(preset) for preset in PRESETS}


async def _alone(producer: AsyncProducer) -> float:
    await asyncio.sleep(0.01)
    sent = time.perf_counter()
    await (await producer.send(SMALL))
    return time.perf_counter() - sent


# Consumers.


async def _of_consumers(client: Client, system: RaftlogSystem) -> Presets:
    for topic, partitions in (("backlog", 10), ("mixed", 2), ("steady", 1)):
        await system.create(topic, partitions)
    await _fill(client, "backlog", BACKLOG_RECORDS)
    await _fill(client, "mixed", BACKLOG_RECORDS, partition=0)

    def measure(preset: str | None) -> Callable[[], Awaitable[Figures]]:
        async def one() -> Figures:
            group = f"{preset}-{time.monotonic_ns()}"
            async with client.consumer(group, "backlog", preset=preset) as consumer:
                rate = await _drained(consumer)
            async with client.consumer(group, "mixed", preset=preset) as consumer:
                fresh_s = await _fresh(client, consumer)
            async with client.consumer(
                None, assign=[("steady", 0)], reset="latest", preset=preset
            ) as consumer:
                per_take, late_s = await _steady(client, consumer)
            return {
                "backlog, records/s": rate,
                "new record beside a backlog, p50, ms": percentile(fresh_s, 50) * MS,
                "one by one: records per take": per_take,
                "one by one: p50, ms": percentile(late_s, 50) * MS,
            }

        return one

    return {str(preset or "none"): measure(preset) for preset in PRESETS}


async def _fill(client: Client, topic: str, records: int, partition: int | None = None) -> None:
    async with client.producer(topic, preset="throughput") as producer:
        for _ in range(records):
            await producer.send(SMALL, partition=partition)


async def _drained(consumer: AsyncConsumer) -> float:
    """The records per second of a consumer that reads a backlog, from its first batch on."""
    found, first, began = 0, 0, 0.0
    async for batch in consumer.batches():
        found += len(batch)
        if not began:
            first, began = found, time.perf_counter()
        if found >= BACKLOG_RECORDS:
            break
    return (found - first) / (time.perf_counter() - began)


async def _fresh(client: Client, consumer: AsyncConsumer) -> Sequence[float]:
    """For each record of partition 1, the seconds from its send until it is handed out, ascending."""
    found, began = list[float](), time.perf_counter()
    async with client.producer("mixed", preset="latency") as producer:
        sending = asyncio.create_task(_send_times(producer, 0.02, partition=1))
        async for batch in consumer.batches():
            if batch[0].partition == 1:
                sent = [float(message.value or 0) for message in batch]
                found += [time.perf_counter() - each for each in sent if each > began]
            elif len(found) >= FRESH_RECORDS:
                break
            else:
                await asyncio.sleep(HANDLED_S * len(batch))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return sorted(found)


async def _steady(client: Client, consumer: AsyncConsumer) -> tuple[float, Sequence[float]]:
    """The mean number of records of a batch, and the seconds until each record is handed out, ascending."""
    takes, found = 0, list[float]()
    async with client.producer("steady", preset="latency") as producer:
        sending = asyncio.create_task(_send_times(producer, 0.001, partition=0))
        async for batch in consumer.batches():
            now = time.perf_counter()
            takes += 1
            found += [now - float(message.value or 0) for message in batch]
            if len(found) > 500:
                break
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    return len(found) / takes, sorted(found)


async def _send_times(producer: AsyncProducer, pause_s: float, *, partition: int) -> None:
    while True:
        await producer.send(repr(time.perf_counter()), partition=partition)
        await asyncio.sleep(pause_s)


# Topics.


async def _of_topics(system: RaftlogSystem) -> Presets:
    batch = build_batch([Record(SMALL)] * 400, codec=Codec.ZSTD, timestamp_ms=0)

    def measure(topic: str) -> Callable[[], Awaitable[Figures]]:
        async def one() -> Figures:
            leader = await asyncio.to_thread(system.cluster.leader, topic, 0)
            url = system.cluster.url(leader)
            request = raw_http.produce_request(url, topic, 0, batch)
            connections = [await raw_http.connect(url, request) for _ in range(STREAMS)]
            used_s = processes.cpu_s_of(system.pids)
            load = await closed_loop.run(connections, records=400, seconds=1.0)
            used_s = processes.cpu_s_of(system.pids) - used_s
            for connection in connections:
                await connection.close()
            return {
                "records/s": load.records_per_s,
                "brokers' CPU, µs per record": used_s / (load.requests * 400) * 1e6,
                "`acks=every`, a follower stopped, s": await _without_a_follower(system, topic, leader),
            }

        return one

    for preset in PRESETS:
        await system.create(f"topic-{preset}", 1, preset=preset)
    return {str(preset or "none"): measure(f"topic-{preset}") for preset in PRESETS}


async def _without_a_follower(system: RaftlogSystem, topic: str, leader: int) -> float:
    """The seconds until a send with ``acks=every`` is acknowledged while a follower is stopped."""
    follower = next(broker for broker in system.cluster.running if broker != leader)
    async with (
        Client(system.cluster.bootstrap, request_timeout="30s") as client,
        client.producer(topic, acks="every") as producer,
    ):
        await (await producer.send(SMALL, partition=0))
        await asyncio.to_thread(system.cluster.pause, follower)
        sent = time.perf_counter()
        try:
            await (await producer.send(SMALL, partition=0))
            return time.perf_counter() - sent
        finally:
            await asyncio.to_thread(system.cluster.resume, follower)
            await asyncio.sleep(1)  # the follower is in sync again
