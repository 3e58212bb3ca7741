"""Measures transactions: their throughput compared with plain produce, and the latency of a commit.

Transactions and plain produce send equal batches over raw connections, and are measured in turn. If Java is
installed, Kafka is measured in the same way with confluent-kafka, after raftlog has stopped.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from api.cli import closed_loop, raw_http
from api.cli.closed_loop import Measured, measured
from api.cli.raw_http import HttpConnection
from bench import kafka_transactions
from bench.load import median
from bench.raftlog_system import TOPIC, RaftlogSystem
from bench.report import Floor, Section, table
from bench.suite import Bench
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.units import counted
from raftlog.wire import headers, media_types, transactions
from transactions.records import Handle

PARTITIONS = 3
RECORDS = 100  # of a transaction, in all partitions together
RECORD_BYTES = 1024
PRODUCERS = (1, 8, 24)


@dataclass(slots=True)
class _Producer:
    """One client. ``send`` writes one batch to each partition, at the same time."""

    urls: Sequence[str]  # of the leaders
    batches: Sequence[bytes]
    connections: list[HttpConnection] = field(default_factory=list)

    async def connect(self) -> None:
        """Connect to the leaders."""
        self.connections = [await raw_http.connect(url) for url in self.urls]

    async def send(self) -> None:
        """Send all batches, and wait for their acknowledgements."""
        await asyncio.gather(
            *(
                connection.ask(raw_http.produce_request(url, TOPIC, number, batch))
                for number, (connection, url, batch) in enumerate(
                    zip(self.connections, self.urls, self.batches, strict=True)
                )
            )
        )

    async def close(self) -> None:
        """Close all connections."""
        for connection in self.connections:
            await connection.close()


@dataclass(slots=True)
class _Transactional(_Producer):
    """A producer that sends its batches in a transaction and waits for the response to its commit."""

    name: str = ""
    coordinator: str = ""  # the URL of any broker
    commits_s: list[float] = field(default_factory=list)
    handle: Handle = field(default_factory=lambda: Handle("", 0, 0))

    async def connect(self) -> None:
        """Connect to the leaders and the coordinator, and open the transactional id."""
        await _Producer.connect(self)
        self.connections.append(await raw_http.connect(self.coordinator))
        body = json.dumps({"transactional_id": self.name}).encode()
        await self._ask(raw_http.post(self.coordinator, transactions.OPEN.path, media_types.JSON, body), "id")

    async def send(self) -> None:
        """Carry out one transaction."""
        await self.write()
        began = time.perf_counter()
        await self.commit()
        self.commits_s.append(time.perf_counter() - began)

    async def write(self) -> None:
        """Send all batches, and wait for their acknowledgements."""
        handle = self.handle
        sent = f"{headers.TRANSACTION}: {handle}\r\n\r\n".encode()
        requests = []
        for number, (url, batch) in enumerate(zip(self.urls, self.batches, strict=True)):
            body = with_producer(batch, handle.producer_id, handle.epoch, 0, in_transaction=True)
            head, _, rest = raw_http.produce_request(url, TOPIC, number, body).partition(b"\r\n\r\n")
            requests.append(head + b"\r\n" + sent + rest)
        await asyncio.gather(
            *(
                connection.ask(request)
                for connection, request in zip(self.connections, requests, strict=False)
            )
        )

    async def commit(self) -> None:
        """Commit the transaction; return once readers of all partitions see it."""
        path = f"{transactions.LIST.path}/{self.handle}:commit"
        await self._ask(raw_http.post(self.coordinator, path, media_types.JSON, b""), "next_id")

    async def _ask(self, request: bytes, name: str) -> None:
        answer = await self.connections[-1].ask(request)
        handle = Handle.parse(str(json.loads(answer.beginning)[name]))
        assert handle is not None
        self.handle = handle


async def throughput(bench: Bench) -> Section:
    """Measure transactions, and equal batches without transactions."""
    section = Section(
        "Transactions",
        f"A transaction has {RECORDS} records of 1 KB in batches for {PARTITIONS} partitions, and ends with "
        "its commit. For comparison, each producer sends the same batches without transactions, all at once, "
        "and waits for their acknowledgements.",
    )
    rows = []
    async with bench.brokers_alone(PARTITIONS) as system:
        urls = [await system.leader_url(number) for number in range(PARTITIONS)]
        for count in PRODUCERS:
            plain: list[Measured] = []
            found: list[Measured] = []
            for _ in range(bench.rounds):
                without = [_Producer(urls, _batches()) for _ in range(count)]
                within = [_transactional(system, urls, number) for number in range(count)]
                try:
                    plain.append(await _loaded(without, bench.seconds))
                    found.append(await _loaded(within, bench.seconds))
                except RuntimeError as error:  # an election, perhaps
                    bench.say(f"transactions, {count} producers: a round is left out: {error}")
            ours, theirs = median(found), median(plain)
            rows.append(_row(counted(count, "producer"), ours, theirs))
            if count == PRODUCERS[-1]:
                what = f"transactions of {RECORDS} records ÷ plain produce, {count} producers"
                section.floors.append(Floor(what, ours.records_per_s / theirs.records_per_s, 0.7, "x"))
    rows += await _on_kafka(bench)
    columns = ["", "transactions/s", "records/s", "plain, records/s", "ratio", "p50", "plain, p50"]
    section.tables.append(table(columns, rows))
    return section


def _row(name: str, ours: Measured, plain: Measured) -> list[str]:
    return [
        name,
        f"{ours.records_per_s / RECORDS:,.0f}",
        f"{ours.records_per_s:,.0f}",
        f"{plain.records_per_s:,.0f}",
        f"{ours.records_per_s / plain.records_per_s:.2f}",
        f"{ours.p50_ms:.1f} ms",
        f"{plain.p50_ms:.1f} ms",
    ]


async def _on_kafka(bench: Bench) -> list[list[str]]:
    """Measure transactions on Kafka with confluent-kafka, without fsync and with an fsync per batch."""
    rows = []
    values = [(number % PARTITIONS, b"x" * RECORD_BYTES) for number in range(RECORDS)]
    async with bench.kafka_alone("transactions") as kafka:
        if kafka is None:
            return []
        for flushing, config in (("no fsync", {}), ("flush.messages=1", {"flush.messages": "1"})):
            topic = f"transactions-{flushing.replace(' ', '-').replace('=', '-')}"
            await kafka.create(topic, PARTITIONS, config)
            for count in PRODUCERS:
                measure = partial(
                    kafka_transactions.run, kafka, topic, values, producers=count, seconds=bench.seconds
                )
                plain, found = list[Measured](), list[Measured]()
                for _ in range(bench.rounds):
                    plain.append(await measure(in_transactions=False))
                    found.append(await measure(in_transactions=True))
                name = f"Kafka, {flushing}, {counted(count, 'producer')}"
                rows.append(_row(name, median(found), median(plain)))
    return rows


async def commit(bench: Bench) -> Section:
    """Measure the commit of a transaction with one record, and one record without a transaction."""
    section = Section(
        "Commit of a transaction",
        "One connection, one request at a time: a record of 1 KB, and the commit of a transaction that has "
        "one such record.",
    )
    batch = build_batch([Record(b"x" * RECORD_BYTES)], codec=Codec.NONE, timestamp_ms=0)
    plain: list[Measured] = []
    found: list[Measured] = []
    async with bench.brokers_alone(PARTITIONS) as system:
        urls = [await system.leader_url(0)]
        for number in range(bench.rounds):
            plain.append(await _loaded([_Producer(urls, [batch])], bench.seconds))
            one = _Transactional(urls, [batch], name=f"commit-{number}", coordinator=system.cluster.urls[0])
            await _loaded([one], bench.seconds)
            found.append(measured(one.commits_s, records=len(one.commits_s), took_s=bench.seconds))
    ours, theirs = median(found), median(plain)
    rows = [
        ["one record", f"{theirs.p50_ms:.2f} ms", f"{theirs.p99_ms:.2f} ms"],
        ["commit", f"{ours.p50_ms:.2f} ms", f"{ours.p99_ms:.2f} ms"],
    ]
    section.tables.append(table(["", "p50", "p99"], rows))
    ratio = ours.p50_ms / theirs.p50_ms
    section.floors.append(Floor("commit ÷ one synchronous record, p50", ratio, 3, "x", is_upper=True))
    return section


def _batches() -> list[bytes]:
    counts = [RECORDS // PARTITIONS + (number < RECORDS % PARTITIONS) for number in range(PARTITIONS)]
    return [
        build_batch([Record(b"x" * RECORD_BYTES)] * count, codec=Codec.NONE, timestamp_ms=0)
        for count in counts
    ]


def _transactional(system: RaftlogSystem, urls: Sequence[str], number: int) -> _Transactional:
    brokers = system.cluster.urls
    coordinator = brokers[number % len(brokers)]
    return _Transactional(urls, _batches(), name=f"copy-{number}", coordinator=coordinator)


async def _loaded(producers: Sequence[_Producer], seconds: float) -> Measured:
    try:
        for producer in producers:
            await producer.connect()
        return await closed_loop.run(producers, records=RECORDS, seconds=seconds)
    finally:
        for producer in producers:
            await producer.close()
