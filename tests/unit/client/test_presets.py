"""Presets of consumers, workers and readers: few large fetches, or short waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

import raftlog
from api.cli.message_source import followed as followed_by_consume
from api.cli.message_source import present
from raftlog.client.consumer.options import consumer_options
from raftlog.client.messages import Message
from raftlog.client.options import READER_PRESETS
from raftlog.client.worker.options import worker_options
from tests.helpers.virtual_client import filled
from tests.helpers.whole_broker import TOPIC

PACE_S = 0.004
RECORDS = 50
BACKLOG = 1000
VALUE = b"x" * 300
READERS = ("member", "assigned", "chunks")
CONSUME = ("present", "followed")  # of ``raftlog consume``
PATH = f"GET /v1/topics/{TOPIC}/partitions/0/records"


async def pieces(
    client: raftlog.aio.Client, reader: str, options: dict[str, Any]
) -> AsyncGenerator[Sequence[Message], None]:
    """The records of the partition as a reader gets them."""
    if reader == "chunks":
        async for chunk in client.partition(TOPIC, 0).chunks("earliest", **options):
            yield chunk.messages
    if reader in CONSUME:
        read = {"followed": followed_by_consume, "present": partial(present, to=None)}[reader]
        how = {"undecodable": "fail", "preset": options["preset"]}
        async for piece in read([client.partition(TOPIC, 0)], "earliest", **how):
            yield piece.messages
    assign = {"topics": TOPIC} if reader == "member" else {"assign": [(TOPIC, 0)]}
    group = "g" if reader == "member" else None
    async with client.consumer(group, **assign, **options) as consumer:
        async for batch in consumer.batches():
            yield batch


async def followed(reader: str, **options: Any) -> tuple[int, float]:  # noqa: ANN401  # of a reader
    """How many fetches records cost that come one by one, and how long the slowest one was on its way."""
    loop, late_s = asyncio.get_running_loop(), list[float]()
    async with filled(1) as (broker, client), client.producer(TOPIC, linger=0) as producer:
        async with aclosing(pieces(client, reader, options)) as source, asyncio.TaskGroup() as tasks:
            await anext(source)  # it has its partition
            before = broker.counted(PATH)
            tasks.create_task(_send_times(producer))
            async for piece in source:
                late_s += [loop.time() - float(message.value or 0) for message in piece]
                if len(late_s) == RECORDS:
                    break
        return broker.counted(PATH) - before, max(late_s)


async def _send_times(producer: raftlog.aio.Producer) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(RECORDS):
        await producer.send(repr(loop.time()))
        await asyncio.sleep(PACE_S)


# requirement: N6
@pytest.mark.parametrize("reader", READERS)
async def test_presets_choose_between_few_fetches_and_short_waits(reader: str) -> None:
    few, long_s = await followed(reader, preset="throughput")
    many, short_s = await followed(reader, preset="latency")
    assert 3 * few < many
    assert short_s < PACE_S < long_s < 0.03
    assert await followed(reader, preset="throughput", linger=0) == (many, short_s)


# requirement: N6
@pytest.mark.parametrize("reader", [*READERS, *CONSUME])
async def test_presets_choose_between_small_and_large_pieces(reader: str) -> None:
    async with filled(0) as (_, client):
        async with client.producer(TOPIC, batch_bytes=16 << 10) as producer:
            for _ in range(BACKLOG):
                await producer.send(VALUE)

        async def first(**options: Any) -> int:  # noqa: ANN401  # of a reader
            async with aclosing(pieces(client, reader, options)) as source:
                return len(await anext(source))

        latency, default, throughput = [await first(preset=name) for name in ("latency", None, "throughput")]
        assert latency < BACKLOG / 2 <= default <= throughput == BACKLOG


# requirement: N6
@pytest.mark.parametrize("preset", READER_PRESETS)
@pytest.mark.parametrize("option", [{"limit": 7}, {"prefetch_bytes": 9}, {"linger": "3ms"}])
def test_a_preset_yields_to_what_is_said(preset: str, option: dict[str, Any]) -> None:
    for make in (consumer_options, worker_options):
        given = {"topics": TOPIC, "group": "g", "preset": preset}
        found, base = make(**given, **option), make(**given)
        found, base = getattr(found, "consumer", found), getattr(base, "consumer", base)
        told = consumer_options(TOPIC, TOPIC, **option)
        for name in ("limit", "prefetch_bytes", "linger_s"):
            source = told if name.startswith(next(iter(option))) else base
            assert getattr(found, name) == getattr(source, name)


# requirement: N6
def test_everything_that_reads_takes_a_preset() -> None:
    with raftlog.Client() as client:
        partition = client.partition(TOPIC, 0)
        for use in (
            lambda: client.consumer("g", TOPIC, preset="fast"),
            lambda: client.worker(TOPIC, group="g", preset="fast"),
            lambda: next(partition.tail(preset="fast")),
            lambda: next(partition.chunks(preset="fast")),
            lambda: client.topics.create("t", preset="fast"),
            lambda: client.topics.alter("t", preset="fast"),
        ):
            with pytest.raises(ValueError, match="preset is 'fast'; choose 'latency', 'throughput'"):
                use()
