"""Measures tags: the broker's selection against a reader that gets all records and drops most.

Both readers fetch binary batches from the leader and decode the batches, as the client does. They are
measured in turn.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass
from statistics import median

import aiohttp

from bench.report import Floor, Section, table
from bench.suite import Bench
from raftlog.aio import Client
from raftlog.client.messages import read_messages
from raftlog.records.tags import TagSelection
from raftlog.units import counted
from raftlog.wire import headers, media_types, records

RECORDS = 200_000
QUICK_RECORDS = 40_000
OTHERS = 20  # tags of the records that do not match
MATCHES = 0.01
WANTED = "refunded"
CHUNK_BYTES = 1 << 20
BYTES_FLOOR, MATCHES_FLOOR = 20.0, 5.0


@dataclass(frozen=True, slots=True)
class _Read:
    """One read of the whole partition."""

    took_s: float
    body_bytes: int
    matches: int


async def tags(bench: Bench) -> Section:
    """Measure a reader of one tag, for records with random tags."""
    count = QUICK_RECORDS if bench.is_quick else RECORDS
    section = Section(
        "Tags",
        f"One partition has {count:,} JSON records of about 250 bytes from the Python client. {MATCHES:.0%} "
        f"have the tag that is read, and each other record has one of {OTHERS} other tags, at random. "
        "One reader asks with `tags`, the other one asks for all records and drops those that do not match. "
        "Both decode what they get. Medians of rounds in turns.",
    )
    rows = []
    async with bench.brokers_alone() as system, Client(system.cluster.bootstrap) as client:
        for compression in ("none", "zstd"):
            topic = f"tags-{compression}"
            await system.create(topic, 1)
            await _fill(client, topic, compression, count)
            leader = system.cluster.url(system.cluster.leader(topic, 0))
            selected, whole = list[_Read](), list[_Read]()
            async with aiohttp.ClientSession() as session:
                for _ in range(bench.rounds):
                    selected.append(await _read(session, leader, topic, on_broker=True))
                    whole.append(await _read(session, leader, topic, on_broker=False))
            assert {read.matches for read in selected} == {read.matches for read in whole}
            fewer = whole[0].body_bytes / selected[0].body_bytes
            faster = median(read.took_s for read in whole) / median(read.took_s for read in selected)
            rows += [_row(f"{compression}, `tags`", selected), _row(f"{compression}, all", whole)]
            rows.append([f"{compression}, ratio", f"{fewer:.1f} x fewer", f"{faster:.1f} x", ""])
            section.floors.append(
                Floor(f"bytes of all records ÷ bytes with tags, {compression}", fewer, BYTES_FLOOR, " x")
            )
            if compression == "none":
                section.floors.append(
                    Floor("matches/s with tags ÷ filtered by the client", faster, MATCHES_FLOOR, " x")
                )
    section.tables.append(table(["compression, reader", "bytes of bodies", "matches/s", "matches"], rows))
    return section


def _row(name: str, reads: list[_Read]) -> list[str]:
    took_s = median(read.took_s for read in reads)
    matches = reads[0].matches
    return [name, f"{reads[0].body_bytes:,}", f"{matches / took_s:,.0f}", counted(matches, "record")]


async def _fill(client: Client, topic: str, compression: str, count: int) -> None:
    rng = random.Random(1)
    async with client.producer(topic, compression=compression) as producer:
        for number in range(count):
            tag = WANTED if rng.random() < MATCHES else f"state-{rng.randrange(OTHERS)}"
            value = {
                "id": number,
                "customer": f"c{rng.randrange(10**6)}",
                "amount": round(rng.random() * 1_000, 2),
                "currency": "EUR",
                "note": "".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=120)),
            }
            await producer.send(json.dumps(value), key=f"u{number % 500}", tags=[tag])


async def _read(session: aiohttp.ClientSession, url: str, topic: str, *, on_broker: bool) -> _Read:
    """Read a partition from its first record to its end."""
    wanted = TagSelection(any=(WANTED,))
    path = url + records.FETCH.at(topic=topic, partition=0)
    offset, body_bytes, matches = 0, 0, 0
    began = time.perf_counter()
    while True:
        query = f"?offset={offset}&max_bytes={CHUNK_BYTES}" + (f"&tags={WANTED}" if on_broker else "")
        async with session.get(path + query, headers={"Accept": media_types.BATCH}) as answer:
            body = await answer.read()
            following = int(answer.headers[headers.NEXT_OFFSET])
        found = read_messages(topic, 0, body, first_offset=offset, next_offset=following, tags=wanted)
        body_bytes += len(body)
        matches += len(found.messages)
        if following == offset:
            return _Read(time.perf_counter() - began, body_bytes, matches)
        offset = following
