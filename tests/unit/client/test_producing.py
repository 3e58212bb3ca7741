"""A producer and its caller: room in the buffer, and functions of the user."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from raftlog.client.portal import Portal
from raftlog.client.receipts import Receipt
from raftlog.errors import NotSent, RaftlogError
from raftlog.testing.waits import LIMIT_S
from tests.helpers.async_tests import in_real_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, whole_broker

RECORDS = "/records"


# requirement: P6
async def test_a_large_record_waits_for_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        whole_broker(1) as whole,
        VirtualClient(whole.url) as client,
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


# requirement: P6
@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, ValueError])
async def test_what_on_ack_raises_does_not_hold_up_the_producer(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def on_ack(receipt: Receipt | None, error: RaftlogError | None) -> None:
        raise kind

    async with whole_broker(1) as whole, VirtualClient(whole.url) as client:
        producer = client.producer(TOPIC, linger=0, buffer_bytes=20_000, batch_bytes=4_000)
        try:
            async with asyncio.timeout(5):
                pending = [await producer.send(b"x" * 1_500, on_ack=on_ack) for _ in range(40)]
                assert [(await one).offset for one in pending] == [*range(40)]
        finally:
            await producer.close(0)
    assert caplog.text.count("on_ack raised an exception") == 40


def test_a_call_that_exits_does_not_end_the_thread_of_a_client() -> None:
    async def exits() -> None:
        sys.exit("of a decoder")

    async def answers() -> str:
        return "an answer"

    portal = Portal()
    with pytest.raises(SystemExit, match="of a decoder"):
        portal.call(exits)
    assert portal.call(answers) == "an answer"
    portal.close()


@in_real_time
async def test_calls_fail_when_the_thread_of_a_client_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    portal, began = Portal(), asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # the thread ends by this error

    async def waits() -> None:
        loop.call_soon_threadsafe(began.set)
        await asyncio.Event().wait()

    def broken() -> None:
        raise OSError("the selector is broken")

    call = asyncio.create_task(portal.awaited(waits))
    await began.wait()
    monkeypatch.setattr(portal._loop, "_run_once", broken)
    portal.post(lambda: None)
    with pytest.raises(RaftlogError, match="the client's thread has ended"):
        await call
    assert not portal.is_open
    with pytest.raises(NotSent, match="the client is closed"):
        await portal.awaited(waits)
    portal.close()
    portal._thread.join(LIMIT_S)  # its hook is called after the calls have failed
    assert not portal._thread.is_alive()
