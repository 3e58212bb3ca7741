"""A producer and its caller: room in the buffer, and functions of the user."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.aio import Client
from tests.helpers.async_tests import in_real_time
from tests.helpers.whole_broker import TOPIC, Trouble, whole_broker

RECORDS = "/records"


# requirement: P6
@in_real_time
async def test_a_record_above_half_of_the_buffer_waits_for_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        whole_broker(1) as whole,
        Client(whole.url) as client,
        client.producer(TOPIC, linger=0, buffer_bytes=1_000_000) as producer,
    ):
        await (await producer.send("warm"))
        waits = 0
        make_ready = producer.make_ready

        async def counted(topic: str | None) -> None:
            nonlocal waits
            waits += 1
            assert waits < 10, "send asks again and again, and never waits"
            await make_ready(topic)

        monkeypatch.setattr(producer, "make_ready", counted)
        whole.trouble(RECORDS, Trouble.HELD)
        await producer.send(b"s" * 400_000)
        large = asyncio.create_task(producer.send(b"l" * 700_000))
        await asyncio.sleep(0)
        assert not large.done()
        whole.release.set()
        assert (await (await large)).offset == 2
        assert waits == 1
        await producer.send("fits at once")
        assert waits == 1
