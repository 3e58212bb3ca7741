"""What is not HTTP is answered with a problem, and nothing of it is repeated anywhere."""

from __future__ import annotations

import re

import msgspec
import pytest

from api.connections.aiohttp_reader import HEADER_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX
from tests.helpers.http_server import HttpServer, serve, served

SECRET = "topsecret"
HEAD = "GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n"
POST = "POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def refusal(answer: bytes) -> dict[str, object]:
    """The problem that is the last thing said on a connection."""
    head, _, body = answer.rpartition(b"\r\n\r\n")
    assert re.match(rb"HTTP/1\.1 4\d\d ", head), answer
    assert b"\r\nConnection: close" in head
    assert b"\r\nContent-Type: application/problem+json\r\n" in head
    problem = msgspec.json.decode(body, type=dict[str, object])
    assert f"\r\nRaftlog-Request-Id: {problem['request_id']}\r\n".encode() in head
    assert problem["status"] == int(head.split()[1])
    return problem


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (f"{SECRET}\r\n\r\n", "method"),
        (f"GET /{SECRET} HTTP/1.1 more\r\nHost: localhost\r\n\r\n", "first line|framing"),
        (f"GET /{SECRET} HTTP/9.9\r\nHost: localhost\r\n\r\n", "first line"),
        (f"get /{SECRET} HTTP/1.1\r\nHost: localhost\r\n\r\n", "method"),
        (f"GET /v1/topics HTTP/1.1\r\nCookie: {SECRET}\r\n\r\n", "Host is missing"),
        (f"{HEAD}Host: {SECRET}\r\n\r\n", "sent twice"),
        (f"{HEAD}Cookie: {SECRET}\x00\r\n\r\n", "header"),
        (f"{HEAD}{SECRET} : a\r\n\r\n", "header"),
        (f"{HEAD}Content-Length: {SECRET}\r\n\r\n", "header"),
        (f"{HEAD}Cookie: {SECRET}\r\nContent-Length: -1\r\n\r\n", "header"),
        (f"{POST}Transfer-Encoding: chunked\r\n\r\n{SECRET}\r\n", "framing"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    ],
)
async def test_what_is_not_http_is_a_problem_that_repeats_nothing(
    sent: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve() as server:
        answer = await server.raw(sent.encode("latin-1"), until_closed=True)
        problem = refusal(answer)
        assert (problem["status"], problem["code"]) == (400, "malformed_request")
        assert re.search(detail, str(problem["detail"])), problem
        assert answer.count(b"\r\nServer: ") == 1
        assert SECRET.encode() not in answer
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (f"GET /{'a' * TARGET_BYTES_MAX} HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "uri_too_long"),
        (f"GET /?a={'a' * 100_000} HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "uri_too_long"),
        (f"{HEAD}Cookie: {'a' * (HEADER_BYTES_MAX + 1)}\r\n\r\n", 431, "headers_too_large"),
        (f"{HEAD}{'a' * 100_000}: a\r\n\r\n", 431, "headers_too_large"),
        (f"{HEAD}Cookie: {'a' * 4_000_000}\r\n\r\n", 431, "headers_too_large"),
        (HEAD + "A: a\r\n" * HEADERS_MAX + "\r\n", 431, "headers_too_large"),
    ],
    ids=["path", "query", "header", "name", "flood", "number"],
)
@served()
async def test_a_too_large_head_is_a_problem(server: HttpServer, sent: str, status: int, code: str) -> None:
    problem = refusal(await server.raw(sent.encode(), until_closed=True))
    assert (problem["status"], problem["code"]) == (status, code)
    if code == "uri_too_long":
        assert problem["limit_bytes"] == TARGET_BYTES_MAX


@served()
async def test_a_path_of_the_greatest_length_is_read(server: HttpServer) -> None:
    path = "/" + "a" * (TARGET_BYTES_MAX - 1)
    answer = await server.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 ")


async def test_an_answer_before_a_damaged_body_is_the_only_one(caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as server:
        head = f"{POST.replace('/v1/topics', '/nothing')}Transfer-Encoding: chunked\r\n\r\n"
        answer = await server.raw(f"{head}{SECRET}\r\n".encode(), until_closed=True)
        assert answer.startswith(b"HTTP/1.1 4")
        assert SECRET.encode() not in answer
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


async def test_many_refusals_are_counted_and_cost_the_log_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with serve() as server:
        for _ in range(3):
            await server.raw(b"nonsense\r\n\r\n", until_closed=True)
        labels = {"method": "other", "route": "(none)", "status": "400"}
        registry = server.cluster.services.registry
        assert registry.get_sample_value("raftlog_http_requests_total", labels) == 3
    told = [record.getMessage() for record in caplog.records if "not HTTP" in record.getMessage()]
    assert len(told) == 1
    assert told[0].endswith("; 0 more since the last line")
