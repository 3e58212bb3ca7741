"""Clients that do not take their answers cost a bounded amount of memory, and nobody else's answer."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name

import pytest

from api.http.streaming import WRITE_BYTES
from api.resources.reading import read_in_turn
from broker.listeners.answers_in_flight import LARGE_PAGES_MAX, AnswersInFlight
from broker.ports import Limits
from partitions.values import FetchRequest, FetchResult
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import Offset
from raftlog.wire import media_types
from tests.helpers.fetching import fetch_result
from tests.helpers.http_server import HttpServer, serve, served
from tests.helpers.virtual_time import eventually

PATH = "/v1/topics/orders/partitions/0/records"
VALUE_BYTES = 6 << 20
OTHER_BYTES_MAX = 8 << 20  # buffers that grow are larger than what is in them
UNTAKEN_BYTES_MAX = 20 << 20  # two or three answers with a value in base64; one of a stream, with its chunk
WAYS = {"plain": "", "aiohttp": "TE: trailers\r\n", "event stream": f"Accept: {media_types.EVENT_STREAM}\r\n"}


@pytest.mark.parametrize("header", WAYS.values(), ids=WAYS)
@served(Limits(response_bytes_in_flight_max=UNTAKEN_BYTES_MAX))
async def test_the_oldest_reader_that_does_not_read_gives_way(server: HttpServer, header: str) -> None:
    await _store_bombs(server, 1)
    answers = server.request_pipeline.admission.answers
    with ExitStack() as stack:
        links: list[asyncio.StreamReader] = []
        for _ in range(6):
            links.append(await _silent_reader(server, header, stack))
            assert answers.untaken_bytes <= UNTAKEN_BYTES_MAX
        assert answers.untaken_bytes > 0
        taken = [await _bytes_of(link, VALUE_BYTES) for link in links]
    assert taken[0] < VALUE_BYTES == taken[-1]
    await eventually(lambda: not answers.untaken_bytes)


@pytest.mark.parametrize("header", WAYS.values(), ids=WAYS)
@served(Limits(response_bytes_in_flight_max=UNTAKEN_BYTES_MAX))
async def test_silent_readers_cost_what_they_leave_untaken(server: HttpServer, header: str) -> None:
    await _store_bombs(server, 2)
    with ExitStack() as stack, _traced():
        for _ in range(6):
            await _silent_reader(server, header, stack)
            for _ in range(1000):  # the end of a connection takes a few steps
                if tracemalloc.get_traced_memory()[0] <= UNTAKEN_BYTES_MAX + OTHER_BYTES_MAX:
                    break
                await asyncio.sleep(0.001)
            assert tracemalloc.get_traced_memory()[0] <= UNTAKEN_BYTES_MAX + OTHER_BYTES_MAX


async def test_a_large_page_of_events_is_written_in_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    # requirement: C4
    written_in_turn = [0]
    socket_transport = resolve_name("asyncio.selector_events:_SelectorSocketTransport")
    write = socket_transport.write

    def counted(transport: asyncio.Transport, data: bytes) -> None:
        if not written_in_turn[-1]:
            asyncio.get_running_loop().call_soon(written_in_turn.append, 0)
        written_in_turn[-1] += len(data)
        write(transport, data)

    monkeypatch.setattr(socket_transport, "write", counted)
    async with serve() as server:
        await _store_bombs(server, 1)
        with ExitStack() as stack:
            link = await _silent_reader(server, WAYS["event stream"], stack, ahead_bytes=4 << 20)
            await _bytes_of(link, VALUE_BYTES)
    assert sum(written_in_turn) > VALUE_BYTES
    assert max(written_in_turn) < 2 * WRITE_BYTES


async def _store_bombs(server: HttpServer, count: int) -> None:
    await server.topic(partitions=1)
    bomb = build_batch([Record(bytes(VALUE_BYTES))], codec=Codec.ZSTD, timestamp_ms=1)
    for _ in range(count):
        sent = await server.call("POST", PATH, bomb, {"Content-Type": media_types.BATCH})
        assert sent.status == 200


async def _silent_reader(
    server: HttpServer, header: str, stack: ExitStack, *, ahead_bytes: int = 2048
) -> asyncio.StreamReader:
    """A connection whose answer has begun to come, and which takes little more than it is asked for."""
    link, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=ahead_bytes)
    stack.callback(writer.close)
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n".encode())
    await _bytes_of(link, 2000)  # records and all
    return link


@contextmanager
def _traced() -> Iterator[None]:
    """Memory is traced, and nothing is freed by a collection that may come late."""
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


async def _bytes_of(link: asyncio.StreamReader, enough: int) -> int:
    count = 0
    try:
        while count < enough and (data := await link.read(enough - count)):
            count += len(data)
    except ConnectionError:
        pass
    return count


async def test_what_waits_for_its_turn_holds_no_records_and_reads_them_again() -> None:
    batch = build_batch([Record(b"v" * 1000)], codec=Codec.ZSTD, timestamp_ms=1)
    held: list[weakref.ref[memoryview]] = []

    async def read(request: FetchRequest) -> FetchResult:
        data = memoryview(batch)
        held.append(weakref.ref(data))
        return fetch_result(data, 1)

    answers, request = AnswersInFlight(1), FetchRequest(position=Offset(0), bytes_max=1)
    with ExitStack() as others:
        for _ in range(LARGE_PAGES_MAX):
            await others.enter_context(answers.turn(lambda: True)).begin()
        with answers.turn(lambda: True) as turn:
            waiting = asyncio.create_task(read_in_turn(read, request, turn))
            await asyncio.sleep(0)
            assert [data() for data in held] == [None]
            others.close()
            assert (await waiting).data is held[1]()
            assert (await read_in_turn(read, request, turn)).data is held[2]()
    assert len(held) == 3
