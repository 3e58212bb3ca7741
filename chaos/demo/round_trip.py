"""Sends every flight into the log and reads it back; the leader of a partition is killed half-way.

If a record is missing, duplicated, changed or out of order, the number of records or the order-sensitive
checksum of its key is wrong.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import urllib.request
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from chaos.cluster import Cluster
from chaos.demo.report import compare, say
from raftlog.client.client import AsyncClient
from raftlog.client.receipts import OnAck, PendingReceipt, Receipt
from raftlog.errors import RaftlogError

TOPIC = "flights"
PARTITIONS = 6
REST_PAGE = 5000

Row = tuple[str, bytes]


@dataclass(slots=True)
class Tally:
    """The number of records, and for each key an order-sensitive checksum of its records."""

    records: int = 0
    size_bytes: int = 0
    checksums: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, key: str, value: bytes) -> None:
        """Add the next record of a key to the count and the checksum."""
        self.records += 1
        self.size_bytes += len(value)
        self.checksums[key] = zlib.crc32(value, self.checksums[key])


@dataclass(slots=True)
class Sent:
    """The records that were sent, and their outcomes for the client. ``acknowledged`` is the number of
    acknowledged records.
    """

    tally: Tally = field(default_factory=Tally)
    acknowledged: int = 0
    errors: list[RaftlogError] = field(default_factory=list)
    took_s: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)


async def send(cluster: Cluster, rows: list[Row]) -> Sent:
    """Create the topic and send all flights; a leader is killed half-way."""
    async with AsyncClient(cluster.bootstrap) as client:
        await client.topics.create(TOPIC, partitions=PARTITIONS, replication_factor=3, exist_ok=True)
        say(f"topic {TOPIC!r}: {PARTITIONS} partitions, 3 replicas each")
        return await produce(client, rows, lambda: asyncio.to_thread(_kill_a_leader, cluster))


async def produce(client: AsyncClient, rows: list[Row], half_way: Callable[[], Awaitable[object]]) -> Sent:
    """Send all rows and wait for all outcomes; call ``half_way`` after half of the rows."""
    sent = Sent()
    receipts: list[PendingReceipt] = []
    began = time.perf_counter()
    try:
        async with client.producer(TOPIC, preset="throughput") as producer:
            for number, (key, value) in enumerate(rows):
                if number == len(rows) // 2:
                    await half_way()
                sent.tally.add(key, value)
                on_ack = _timer(sent) if number % 50 == 0 else None
                receipts.append(await producer.send(value, key=key, on_ack=on_ack))
    except* RaftlogError as errors:  # failed records are counted below, by their receipts
        sent.errors += [error for error in errors.exceptions if isinstance(error, RaftlogError)]
    sent.took_s = time.perf_counter() - began
    sent.acknowledged = sum(receipt.done() and receipt.exception() is None for receipt in receipts)
    return sent


def _timer(sent: Sent) -> OnAck:
    began = time.perf_counter()

    def answered(receipt: Receipt | None, error: RaftlogError | None) -> None:
        now = time.perf_counter()
        sent.answered_s.append(now)
        sent.latencies_ms.append((now - began) * 1000)

    return answered


def _kill_a_leader(cluster: Cluster) -> int:
    leader = cluster.leader(TOPIC, 0)
    cluster.kill(leader)
    say(f"kill -9: broker {leader}, the leader of {TOPIC}/0")
    return leader


def read_by_rest(cluster: Cluster) -> Tally:
    """Read all records through the HTTP API, from any broker."""
    tally = Tally()
    for partition in range(PARTITIONS):
        cluster.leader(TOPIC, partition)
        offset = 0
        while True:
            query = f"offset={offset}&limit={REST_PAGE}&format=utf8"
            path = f"/v1/topics/{TOPIC}/partitions/{partition}/records?{query}"
            with urllib.request.urlopen(cluster.url(cluster.running[0]) + path, timeout=30) as answer:
                if answer.status == 204:
                    break
                page = json.load(answer)
            for record in page["records"]:
                tally.add(record["key"], record["value"].encode())
            offset = page["next_offset"]
    return tally


async def read_by_client(bootstrap: str) -> Tally:
    """Read all records with the Python client."""
    async with AsyncClient(bootstrap) as client:
        return await read_back(client)


async def read_back(client: AsyncClient) -> Tally:
    """Read all records of all partitions, each partition in order."""
    tally = Tally()
    for number in range(PARTITIONS):
        partition = client.partition(TOPIC, number)
        offset = 0
        while True:
            chunk = await partition.read(offset, max_bytes=4 << 20)
            for message in chunk.messages:
                tally.add((message.key or b"").decode(), message.value or b"")
            offset = chunk.next_offset
            if not chunk.messages:
                break
    return tally


def verdict(sent: Sent, by_rest: Tally, rest_s: float, by_client: Tally, client_s: float) -> bool:
    """Print the figures; return whether all records were acknowledged and read back unchanged."""
    tally = sent.tally
    mebibytes = tally.size_bytes / (1 << 20)
    gap_s = _longest_gap_s(sent.answered_s)
    say("")
    for name, seconds in (("sent", sent.took_s), ("read by the client", client_s), ("read by REST", rest_s)):
        say(f"{name:<20}{tally.records / seconds:>12,.0f} records/s {mebibytes / seconds:>8.1f} MB/s")
    latencies = sorted(sent.latencies_ms)
    p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    say(f"{'acknowledged after':<20} p50 {p50:.0f} ms, p99 {p99:.0f} ms; longest silence {gap_s:.2f} s")
    results = [
        compare("records in, acknowledged", tally.records, sent.acknowledged),
        compare("records out by REST", tally.records, by_rest.records),
        compare("records out by the client", tally.records, by_client.records),
        compare("checksums per key equal, REST", len(tally.checksums), _equal(tally, by_rest)),
        compare("checksums per key equal, client", len(tally.checksums), _equal(tally, by_client)),
    ]
    for error in sent.errors[:3]:
        say(f"not sent: {error}")
    is_good = all(results)
    say("no record lost, duplicated, or reordered within a key" if is_good else "THE DEMO FAILED")
    return is_good


def _equal(wanted: Tally, found: Tally) -> int:
    return sum(found.checksums.get(key) == checksum for key, checksum in wanted.checksums.items())


def _longest_gap_s(moments: Iterable[float]) -> float:
    ordered = sorted(moments)
    return max((after - before for before, after in itertools.pairwise(ordered)), default=0.0)
