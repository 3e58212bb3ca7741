"""The short way of plain requests: it answers as aiohttp does, and takes nothing that is not plain."""

from __future__ import annotations

import asyncio
import re
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping

import pytest
from aiohttp import web
from multidict import CIMultiDict

from api.app import RequestPipeline
from api.connections.fast_path import FastPathServer
from api.connections.plain_requests import BODY_BYTES_MAX, PlainRequest, read_head, write_answer
from api.http.whole_body import STEP_BYTES, WholeBody
from broker.listeners.answers_in_flight import AnswersInFlight
from broker.listeners.connection_limit import ConnectionLimit
from broker.ports import Limits
from raftlog.types import TopicPartition
from raftlog.wire import media_types
from tests.helpers.http_server import HttpServer, fake_cluster, served
from tests.helpers.wire import Wire

HOST = "Host: localhost\r\n"
NOT_PLAIN = "TE: trailers\r\n"  # changes nothing, and sends a connection the long way
VARYING = re.compile(rb'(?i)((?:raftlog-request-id|date): )[^\r]+|("request_id":"|"timestamp":)[^",}]+')


def no_limit() -> ConnectionLimit:
    return ConnectionLimit("HTTP", 100, 100, RequestPipeline(fake_cluster(None, 1).services).metrics)


def head(text: str) -> object:
    """What is made of a head by itself."""
    return read_head(f"{text}\r\n".encode("latin-1"))


def request(line: str, body: bytes = b"", more: str = "", kind: str = media_types.JSON) -> bytes:
    """A request as clients send it."""
    announced = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{line} HTTP/1.1\r\n{HOST}{more}{announced}\r\n".encode() + body


ONE = b'{"records":[{"value":"v"}]}'


@pytest.mark.parametrize(
    ("line", "body", "more"),
    [
        ("GET /v1/topics", b"", ""),
        ("GET /v1/topics?limit=1", b"", ""),
        ("GET /v1/topics?limit=1&limit=2", b"", ""),
        ("GET /v1/topics?nonsense=1", b"", ""),
        ("GET /v1/topics", b"", "Accept: image/png\r\n"),
        ("GET /v1/topics/nobody", b"", ""),
        ("GET /v1/topics/orders/partitions/0/records?offset=0", b"", f"Accept: {media_types.BATCH}\r\n"),
        ("GET /v1/topics/orders/partitions/0/records?offset=latest", b"", ""),
        ("GET /v1/topics/orders/partitions/0/records?offset=999", b"", ""),
        ("GET /v1/topics/orders/partitions/77/records", b"", ""),
        ("GET /nothing/here", b"", ""),
        ("PUT /v1/topics", b"", ""),
        ("POST /v1/topics/orders/partitions/0", b"", ""),
        ("POST /v1/topics/orders/records/0", b"", ""),
        ("GET /v1/topics/orders/partitions/0:set-replicas", b"", ""),
        ("POST /v1/topics/orders/partitions/:set-replicas", b"", ""),
        ("POST /v1/topics/orders/partitions/0:nothing", b"", ""),
        ("GET /v1/topics/orders/partitions/0/records", b"", "Accept: text/html\r\n"),
        ("DELETE /v1/topics/nobody", b"", ""),
        ("POST /v1/topics/orders/records", b'{"records":[]}', ""),
        ("POST /v1/topics/orders/records", b'{"records":', ""),
        ("POST /v1/topics/orders/records", b"", ""),
        ("POST /v1/topics/orders/partitions/0/records?acks=some", ONE, ""),
        ("POST /v1/topics/orders/partitions/0/records?acks=0", ONE, ""),
        ("POST /v1/topics/orders/records", ONE, "Raftlog-Fence: 1\r\n"),
        ("POST /v1/topics/orders/records", ONE, "Content-Encoding: gzip\r\n"),
        ("POST /v1/topics/orders/records", ONE, "Content-Encoding: br\r\n"),
        ("POST /v1/topics", b'{"name":"a b"}', ""),
        ("GET /openapi.json", b"", ""),
        ("GET /docs", b"", ""),
    ],
)
@served(partitions=1)
async def test_both_ways_answer_alike(server: HttpServer, line: str, body: bytes, more: str) -> None:
    await server.post("/v1/topics/orders/records", {"records": [{"value": "first"}]})
    short = await server.raw(request(line, body, more))
    long = await server.raw(request(line, body, more + NOT_PLAIN))
    assert VARYING.sub(rb"\1\2", short) == VARYING.sub(rb"\1\2", long)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/topics", "GET, HEAD, POST"),
        ("POST", "/v1/topics/orders/partitions/0", "GET, HEAD"),
        ("POST", "/v1/topics/orders/partitions/0:explode", "GET, HEAD"),
        ("GET", "/v1/topics/orders/partitions/0:transfer-leadership", "POST"),
        ("GET", "/v1/topics/orders/partitions/0%3Atransfer-leadership", "POST"),
        ("GET", "/v1/topics/orders/partitions/0:unsafe-recover", "POST"),
        ("POST", "/v1/topics/orders/records/0", None),
    ],
)
@served(partitions=1)
async def test_an_action_is_a_path(server: HttpServer, method: str, path: str, allowed: str | None) -> None:
    for more in ("", NOT_PLAIN):
        answer = await server.raw(request(f"{method} {path}", more=more))
        if allowed is None:
            assert answer.startswith(b"HTTP/1.1 404 ")
            assert b'"code":"path_not_found"' in answer
        else:
            assert answer.startswith(b"HTTP/1.1 405 ")
            assert b'"code":"method_not_allowed"' in answer
            assert f"\r\nAllow: {allowed}\r\n".encode() in answer


@pytest.mark.parametrize(
    "accept", [media_types.EVENT_STREAM, "text/*", "TEXT/Event-Stream;q=0.5", "application/json;q=0,text/*"]
)
@served(partitions=1)
async def test_what_is_negotiated_to_a_stream_is_given_by_aiohttp(server: HttpServer, accept: str) -> None:
    for more in ("", NOT_PLAIN):
        accepting = f"{more}Accept: {accept}\r\n"
        line = "GET /v1/topics/orders/partitions/0/records"
        answer = await server.raw(request(line, more=accepting))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"Content-Type: text/event-stream\r\n" in answer
        answer = await server.raw(request("GET /v1/topics/orders", more=accepting))
        assert answer.startswith(b"HTTP/1.1 406 ")


@pytest.mark.parametrize(
    "text",
    [
        f"GET / HTTP/1.0\r\n{HOST}",
        f"get / HTTP/1.1\r\n{HOST}",
        f"GET /%61 HTTP/1.1\r\n{HOST}",
        f"GET /a/../b HTTP/1.1\r\n{HOST}",
        f"GET //a HTTP/1.1\r\n{HOST}",
        f"GET http://localhost/ HTTP/1.1\r\n{HOST}",
        f"GET /?a=%20 HTTP/1.1\r\n{HOST}",
        f"GET /?a HTTP/1.1\r\n{HOST}",
        f"GET /?a=1&&b=2 HTTP/1.1\r\n{HOST}",
        "GET / HTTP/1.1\r\n",
        f"GET / HTTP/1.1\r\n{HOST}{HOST}",
        f"GET / HTTP/1.1\r\n{HOST}A : b\r\n",
        f"GET / HTTP/1.1\r\n{HOST} folded: b\r\n",
        f"GET / HTTP/1.1\r\n{HOST}A: b\n",
        f"GET / HTTP/1.1\r\n{HOST}A: b\rC: d\r\n",
        f"GET / HTTP/1.1\r\n{HOST}A: \x00\r\n",
        f"GET / HTTP/1.1\r\n{HOST}A: \xe9\r\n",
        f"GET / HTTP/1.1\r\n{HOST}\nA: b\r\n",
        f"GET / HTTP/1.1\r\n{HOST}no colon\r\n",
        f"GET / HTTP/1.1\r\n{HOST}Connection: close\r\n",
        f"GET / HTTP/1.1\r\n{HOST}Connection: upgrade\r\nUpgrade: websocket\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 1\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1\r\ncontent-length: 2\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Content-Length: 1, 1\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Content-Type: text/plain\r\nContent-type: application/json\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Content-Length: +1\r\n",
        f"POST / HTTP/1.1\r\n{HOST}Content-Length: {BODY_BYTES_MAX + 1}\r\n",
        f"GET / HTTP/1.1\r\n{HOST}" + "A: b\r\n" * 100,
    ],
)
def test_what_is_not_plain_is_left_to_aiohttp(text: str) -> None:
    assert head(text) is None


def test_what_is_plain_is_read() -> None:
    text = f"POST /a/b?c=d:e&f= HTTP/1.1\r\n{HOST}X-Y:\t z, w \r\nContent-Length: 5\r\n\r\n"
    found = read_head(text.encode())
    assert found is not None
    assert (found.query_string, found.length) == ("c=d:e&f=", 5)
    assert found.headers["x-y"] == "z, w"
    assert (found.method, found.path) == ("POST", "/a/b")


@pytest.mark.parametrize("piece_bytes", [50, 10_000])
@served(partitions=1)
async def test_pipelined_requests_are_answered_in_order(server: HttpServer, piece_bytes: int) -> None:
    produce = request("POST /v1/topics/orders/records", ONE)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    whole = produce * 3 + request("GET /v1/topics/orders") + request("GET /nothing")
    for at in range(0, len(whole), piece_bytes):
        writer.write(whole[at : at + piece_bytes])
        await asyncio.sleep(0)
    answers = b""
    async with asyncio.timeout(20):
        while answers.count(b"HTTP/1.1 ") < 5:
            answers += await reader.read(65536)
    assert re.findall(rb'HTTP/1.1 (\d+)|"offset":(\d+)', answers) == [
        *((pair) for n in b"012" for pair in ((b"200", b""), (b"", bytes([n])))),
        (b"200", b""),
        (b"404", b""),
    ]
    writer.close()


@served(partitions=1)
async def test_a_body_may_come_in_pieces_and_the_connection_goes_on(server: HttpServer) -> None:
    produce = request("POST /v1/topics/orders/records", ONE)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for _ in range(2):
        for piece in (produce[:-20], produce[-20:-5], produce[-5:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


@served(partitions=1)
async def test_a_refused_body_that_still_comes_is_read_and_forgotten(server: HttpServer) -> None:
    body = b"x" * 100_000
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request("POST /v1/topics/orders/records", body, kind="text/plain")[:-90_000])
    async with asyncio.timeout(20):
        assert (await reader.read(65536)).startswith(b"HTTP/1.1 415 ")
        writer.write(body[:90_000] + request("GET /v1/topics/orders"))
        assert (await reader.read(65536)).startswith(b"HTTP/1.1 200 ")
    writer.close()


@served(Limits(body_bytes_max=1000, body_timeout_s=0.1), partitions=1)
async def test_a_body_that_is_too_large_or_late_ends_the_connection(server: HttpServer) -> None:
    large = request("POST /v1/topics/orders/records", b"x" * 5000)
    assert (await server.raw(large, until_closed=True)).startswith(b"HTTP/1.1 413 ")
    late = request("POST /v1/topics/orders/records", b"x" * 500)[:-1]
    assert (await server.raw(late, until_closed=True)).startswith(b"HTTP/1.1 408 ")


@served(partitions=1)
async def test_a_large_body_is_read_into_one_buffer_and_stored(server: HttpServer) -> None:
    # requirement: L8
    body = bytes(range(256)) * 3_500
    produce = request("POST /v1/topics/orders/records", body, kind=media_types.OCTET_STREAM)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for _ in range(2):
        writer.write(produce)
        async with asyncio.timeout(20):
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()
    stored = server.cluster.gateway.log(TopicPartition("orders", 0)).batches
    assert [body in bytes(batch.data) for batch in stored] == [True, True]


def test_an_announced_size_alone_takes_no_memory() -> None:
    body = WholeBody(memoryview(b"begin"), 4 << 20, lambda: None)
    assert body.missing == (4 << 20) - 5
    room = body.room()
    assert room is not None
    assert len(room) <= STEP_BYTES


async def test_a_client_is_not_ahead_of_a_handler_that_does_not_read() -> None:
    may_read = asyncio.Event()

    async def later(plain: object) -> web.StreamResponse:
        assert isinstance(plain, PlainRequest)
        await may_read.wait()
        while plain.content.missing:
            await plain.content.more(asyncio.get_running_loop().time() + 5)
        assert plain.content.whole() == b"x" * 1_000_000
        return web.Response(status=204)

    server = FastPathServer(_Answers(later), asyncio.Protocol, 20, AnswersInFlight(1 << 20), no_limit())
    connection = server.accept()
    wire = Wire(connection)
    whole = request("POST /", b"x" * 1_000_000)
    wire.send(whole[:400_000])
    await asyncio.sleep(1)
    assert wire.is_paused
    may_read.set()
    await asyncio.sleep(1)
    assert not wire.is_paused
    wire.send(whole[400_000:])
    await asyncio.sleep(1)
    assert wire.answers.startswith(b"HTTP/1.1 204 ")
    await server.stop(1)


def test_no_answer_has_a_line_too_many() -> None:
    response = web.Response(headers=CIMultiDict({"Location": "/a\r\nSet-Cookie: b"}))
    with pytest.raises(ValueError, match="line break"):
        write_answer(asyncio.Transport(), response, is_last=False)


class _AlmostSent(Wire):
    """The kernel takes all bytes of an answer but the last."""

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        super().writelines(list_of_data)
        self.get_protocol().pause_writing()

    def get_write_buffer_size(self) -> int:
        return 1


class _Answers:
    """An application with one answer."""

    def __init__(self, answer: Callable[[object], Awaitable[web.StreamResponse]]) -> None:
        self.answer_plain = answer

    def is_streamed(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Never."""
        return False


async def test_only_a_connection_without_a_request_is_closed_for_its_silence() -> None:
    async def slowly(_: object) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response(status=204)

    server = FastPathServer(_Answers(slowly), asyncio.Protocol, 20, AnswersInFlight(1 << 20), no_limit())
    silent, asking = Wire(server.accept()), Wire(server.accept())
    asking.send(request("GET /"))
    await asyncio.sleep(59)
    assert [wire.is_closing() for wire in (silent, asking)] == [True, False]
    await asyncio.sleep(2)
    assert asking.answers.startswith(b"HTTP/1.1 204 ")
    await asyncio.sleep(15)
    assert not asking.is_closing()  # it is silent since its answer, however old it is
    await asyncio.sleep(15)
    assert asking.is_closing()
    await server.stop(1)


async def test_an_answer_counts_as_a_whole_until_its_client_has_taken_its_end() -> None:
    # requirement: C4
    written = []

    async def at_once(_: object) -> web.StreamResponse:
        response = web.Response(body=bytes(300_000))
        written.append(weakref.ref(response))
        return response

    answers = AnswersInFlight(1 << 20)
    server = FastPathServer(_Answers(at_once), asyncio.Protocol, 20, answers, no_limit())
    connection = server.accept()
    wire = _AlmostSent(connection)
    wire.send(request("GET /"))
    await asyncio.sleep(1)
    assert wire.high == 0  # every unsent byte is told
    assert answers.untaken_bytes == 300_000
    assert [response() for response in written] == [None]  # the transport has what is left of it
    connection.resume_writing()
    assert answers.untaken_bytes == 0
    await server.stop(1)


@pytest.mark.parametrize("ahead", [0, 1, 3])
async def test_a_client_that_reads_no_answers_gets_no_further_ones(ahead: int) -> None:
    answered = 0

    async def at_once(_: object) -> web.StreamResponse:
        nonlocal answered
        answered += 1
        return web.Response(status=204)

    server = FastPathServer(_Answers(at_once), asyncio.Protocol, 20, AnswersInFlight(1 << 20), no_limit())
    connection = server.accept()
    wire = Wire(connection)
    wire.send(request("GET /") * (1 + ahead))  # some come before the first answer
    connection.pause_writing()  # which fills what the transport holds
    await asyncio.sleep(1)
    wire.send(request("GET /") * (3 - ahead))
    await asyncio.sleep(1)
    assert answered == 1
    connection.resume_writing()
    await asyncio.sleep(1)
    assert answered == 4
    assert not wire.is_paused  # or it would never hear of the next one
    await server.stop(1)
