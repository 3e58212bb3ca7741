"""Clients that do not take their answers cost a bounded amount of memory, and nobody else's answer."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import pytest

from api.answers_in_flight import LARGE_PAGES_MAX, AnswersInFlight
from api.services import Limits
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from tests.helpers.http_server import HttpServer, serve

PATH = "/v1/topics/orders/partitions/0/records"
VALUE_BYTES = 6 << 20
UNTAKEN_BYTES_MAX = 20 << 20  # two or three answers with a value in base64; one of a stream, with its chunk
WAYS = {
    "plain": "",
    "aiohttp": "TE: trailers\r\n",
    "event stream": f"Accept: {media_types.EVENT_STREAM}\r\n",
}


@pytest.mark.parametrize("header", WAYS.values(), ids=WAYS)
def test_the_oldest_reader_that_does_not_read_gives_way(header: str) -> None:
    async def scenario(server: HttpServer) -> None:
        await server.topic(partitions=1)
        bomb = build_batch([Record(bytes(VALUE_BYTES))], codec=Codec.ZSTD, timestamp_ms=1)
        sent = await server.call("POST", PATH, bomb, {"Content-Type": media_types.BATCH})
        assert sent.status == 200
        answers = server.boundary.admission.answers
        request = f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode()
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            links: list[socket.socket] = []
            for _ in range(6):
                link = stack.enter_context(socket.socket())
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                link.setblocking(False)
                await loop.sock_connect(link, ("127.0.0.1", server.port))
                await loop.sock_sendall(link, request)
                links.append(link)
                await _bytes_of(link, 2000)  # its answer is on its way, records and all
                assert answers.untaken_bytes <= UNTAKEN_BYTES_MAX
            assert answers.untaken_bytes > 0
            taken = [await _bytes_of(link, VALUE_BYTES) for link in links]
        assert taken[0] < VALUE_BYTES == taken[-1]
        while answers.untaken_bytes:
            await asyncio.sleep(0.001)

    serve(scenario, Limits(untaken_bytes_max=UNTAKEN_BYTES_MAX))


async def _bytes_of(link: socket.socket, enough: int) -> int:
    loop, count = asyncio.get_running_loop(), 0
    try:
        while count < enough and (data := await loop.sock_recv(link, min(enough - count, 1 << 20))):
            count += len(data)
    except ConnectionResetError:
        pass
    return count


def test_nothing_long_is_made_for_a_client_that_has_gone() -> None:
    async def story() -> None:
        answers, clients, made = AnswersInFlight(1), {"one"}, []
        with answers.turn(lambda: "one" in clients) as turn:
            await turn.computed(lambda: made.append(1), is_short=False)
            clients.clear()
            await turn.computed(lambda: made.append(2), is_short=True)
            with pytest.raises(ConnectionResetError):
                await turn.computed(lambda: made.append(3), is_short=False)
        assert made == [1, 2]

    asyncio.run(story())


def test_long_work_waits_for_its_turn_and_short_work_does_not() -> None:
    async def story() -> None:
        answers = AnswersInFlight(1)
        turns = [answers.turn(lambda: True) for _ in range(LARGE_PAGES_MAX)]
        for turn in turns:
            assert await turn.computed(lambda: 1, is_short=False) == 1
            assert await turn.computed(lambda: 2, is_short=False) == 2  # in the same place
        late = answers.turn(lambda: True)
        assert await late.computed(lambda: 3, is_short=True) == 3
        waiting = asyncio.create_task(late.computed(lambda: 4, is_short=False))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        with turns[0]:
            pass
        assert await waiting == 4

    asyncio.run(story())
