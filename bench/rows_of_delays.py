"""Measures delayed messages: how late they are when 10,000 are due in each second.

The lateness of a message is the time at which it was appended to its topic minus the time at which it was
due. Both times are from the wall clock of this machine.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import aiohttp
import msgspec

from bench.report import Floor, Section, table
from bench.suite import Bench
from raftlog.wire import records as record_operations
from raftlog.wire.delays import DELAYED_RECORDS_MAX

TOPIC: Final = "reminders"
PARTITIONS: Final = 6
PER_SECOND: Final = 10_000
SECONDS, QUICK_SECONDS = 30, 5
AHEAD_S: Final = 5  # time in which all are accepted before the first is due
SENDERS: Final = 4
VALUE: Final = "x" * 100
LATE_MS_FLOOR: Final = 100.0


async def delayed(bench: Bench) -> Section:
    """Measure delayed messages that become due at a steady rate, on three brokers."""
    seconds = QUICK_SECONDS if bench.is_quick else SECONDS
    count = PER_SECOND * seconds
    section = Section(
        "Delayed messages",
        f"{count:,} messages of 100 bytes for {PARTITIONS} partitions, of which {PER_SECOND:,} are due in "
        f"each of {seconds} seconds. All are accepted before the first one is due. Lateness is the append "
        "time in the topic minus the time at which a message was due.",
    )
    async with bench.brokers_alone() as system, aiohttp.ClientSession() as session:
        await system.create(TOPIC, PARTITIONS)
        first_ms, accepted_s = await _accepted(session, system.cluster.urls, count)
        await asyncio.sleep(max(0.0, first_ms / 1_000 + seconds - time.time()))
        late = sorted(await _lateness(session, system.cluster.urls[0], count))
    p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
    section.tables.append(
        table(
            ["messages", "accepted/s", "late p50", "late p99", "late at most"],
            [[f"{count:,}", f"{count / accepted_s:,.0f}", *(f"{ms} ms" for ms in (p50, p99, late[-1]))]],
        )
    )
    section.floors.append(
        Floor(f"p99 of lateness at {PER_SECOND:,} due per second", p99, LATE_MS_FLOOR, " ms", is_upper=True)
    )
    assert late[0] >= 0, "a message is early"
    return section


async def _accepted(session: aiohttp.ClientSession, urls: list[str], count: int) -> tuple[int, float]:
    """Send all messages.

    Returns the time in ms at which the first message is due, and the seconds until all messages were
    accepted.
    """
    await _send(session, urls[0], [{"value": "warm", "delay": 0, "partition": 0}])  # creates ``__delayed``
    began_s = time.time()
    first_ms = int((began_s + AHEAD_S + count / 4_000) * 1_000)
    starts = iter(range(0, count, DELAYED_RECORDS_MAX))

    async def send(url: str) -> None:
        for start in starts:
            numbers = range(start, min(start + DELAYED_RECORDS_MAX, count))
            await _send(
                session,
                url,
                [
                    {
                        "value": VALUE,
                        "partition": number % PARTITIONS,
                        "deliver_at": first_ms + number * 1_000 // PER_SECOND,
                        "headers": {"due": str(first_ms + number * 1_000 // PER_SECOND)},
                    }
                    for number in numbers
                ],
            )

    await asyncio.gather(*(send(urls[number % len(urls)]) for number in range(SENDERS)))
    return first_ms, time.time() - began_s


async def _send(session: aiohttp.ClientSession, url: str, records: list[dict[str, object]]) -> None:
    body = msgspec.json.encode({"records": records})
    path = url + record_operations.PRODUCE.at(topic=TOPIC)
    while True:
        async with session.post(path, data=body, headers={"Content-Type": "application/json"}) as answer:
            if answer.status == 200:
                return
            if answer.status != 503:
                raise RuntimeError(f"{answer.status}: {(await answer.text())[:300]}")
        await asyncio.sleep(0.05)  # definitely refused: there is no leader yet, or no room


async def _lateness(session: aiohttp.ClientSession, url: str, count: int) -> list[int]:
    """Wait until all messages are in the topic; return the lateness of each message in milliseconds."""
    late: list[int] = []
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    while len(late) < count:
        for partition, offset in offsets.items():
            path = url + record_operations.FETCH.at(topic=TOPIC, partition=partition)
            async with session.get(f"{path}?offset={offset}&limit=10000") as answer:
                if answer.status != 200:
                    continue
                page = msgspec.json.decode(await answer.read())
            timed = [record for record in page["records"] if "due" in record["headers"]]
            late += (record["timestamp"] - int(record["headers"]["due"]) for record in timed)
            offsets[partition] = page["next_offset"]
        await asyncio.sleep(0.1)
    return late
