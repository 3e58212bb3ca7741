"""Requests of commands that only look: what brokers and proxies may do to them."""

from __future__ import annotations

import asyncio
import http.client
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import cast

import msgspec
import pytest

from api.cli import connection
from api.cli.local import _is_ready
from api.cli.reading import Reading, answer_of, opened
from api.cli.samples import group_lags
from raftlog.errors import Draining, NoLeader, NotSent, RaftlogError
from raftlog.wire.bodies import ClusterDescription
from tests.helpers.async_tests import beside
from tests.helpers.command_line import invoke
from tests.helpers.no_brokers import frozen_broker

INFO = ClusterDescription(cluster_id="c", controller=1, metadata_version=4, brokers=3, version="0.1.0")
BODY = msgspec.json.encode(INFO)
CLOSE = "Connection: close\r\n"


def answer(body: bytes = BODY, status: str = "HTTP/1.1 200 OK", more: str = "", missing: int = 0) -> bytes:
    return f"{status}\r\nContent-Length: {len(body) + missing}\r\n{more}\r\n".encode() + body


def problem(error: RaftlogError) -> bytes:
    facts = {"type": "/", "title": "", "status": 503, **error.problem}
    return answer(msgspec.json.encode(facts), "HTTP/1.1 503 Unavailable")


@asynccontextmanager
async def scripted(*answers: bytes, pause_s: float = 0.0) -> AsyncIterator[str]:
    """The address of a server with these answers, the last one again and again; byte by byte with a pause."""
    left, serving = deque(answers), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(cast("asyncio.Task[None]", asyncio.current_task()))
        with closing(writer), suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readline():
                await reader.readuntil(b"\r\n\r\n")
                found = left.popleft() if len(left) > 1 else left[0]
                for place in range(len(found)) if pause_s else ():
                    writer.write(found[place : place + 1])
                    await asyncio.sleep(pause_s)
                writer.write(b"" if pause_s else found)
                if b"close" in found or not found.startswith(b"HTTP/1.1"):
                    return

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([answer(more=CLOSE)], id="closed after each response"),
        pytest.param([answer(status="HTTP/1.0 200 OK")], id="HTTP/1.0"),
        pytest.param([answer(BODY[:-9], more=CLOSE, missing=9), answer()], id="a response that ends early"),
        pytest.param([b"\x00\xff\r\n\r\n", answer()], id="garbage"),
        pytest.param([problem(Draining("stopping"))], id="one broker stops"),
        pytest.param([problem(NoLeader("cut off"))], id="one broker is cut off"),
    ],
)
def test_a_command_that_looks_gets_its_result(answers: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_TIMEOUT", "2s")
    with beside(scripted(*answers)) as url, beside(scripted(answer())) as other:
        ask = Reading(f"{url},{other}" if b"503" in answers[0] else url)
        with closing(ask):
            assert [ask(ask.cluster.describe()) for _ in range(3)] == [INFO] * 3


def test_a_response_that_comes_slowly_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBE_TIMEOUT", "300ms")
    late = pytest.raises(RaftlogError, match=r"no response within 0.3 s")
    with beside(scripted(answer(), pause_s=0.05)) as url, closing(Reading(url)) as ask, late:
        ask(ask.cluster.describe())


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "503 Service Unavailable"])
def test_a_proxy_without_brokers_is_none(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBE_TIMEOUT", "300ms")
    monkeypatch.setattr(connection, "RETRY_TIMEOUT", "1s")
    with beside(scripted(answer(b"busy", f"HTTP/1.1 {status}", "Retry-After: 9\r\n"))) as url:
        assert f"no broker answers at {url}" in invoke(url, "cluster", "describe", code=4).stderr


@pytest.mark.parametrize(
    ("metrics", "lags"),
    [
        (b"\xff", {}),
        (b'raftlog_group_offsets{group="g"} NaN\n', {}),
        (b'raftlog_group_offsets{group="g"} 2\n' + (lag := b'raftlog_group_lag_records{group="g"} 5\n'), {}),
        (b'raftlog_group_offsets{group="g"} 1\n' + lag, {"g": 5}),
    ],
)
def test_a_lag_is_that_of_all_partitions(
    metrics: bytes, lags: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    with beside(scripted(answer(metrics))) as url:
        assert group_lags([url]) == lags
    assert capsys.readouterr().err == ""


def test_brokers_may_advertise_https_where_the_command_was_given_http(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(http.client, "HTTPSConnection")  # as it is without TLS
    silent = pytest.raises(OSError, match="handshake")
    with beside(frozen_broker()) as url, closing(opened(url.replace("http", "https"), 0.3)) as made, silent:
        answer_of(made, "/healthz/ready", 0.3)


@pytest.mark.parametrize("command", ["broker forget 3", "broker drain 3", "topic delete t --yes"])
def test_a_change_without_a_response_is_unknown(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_TIMEOUT", "100ms")
    with beside(scripted(answer(), answer()[:-9] + CLOSE.encode())) as url:
        assert "connection_lost" in invoke(url, *command.split(), code=3).stderr


def test_a_name_that_is_too_long_is_not_reached() -> None:
    with (
        closing(Reading(f"{'a' * 64}.example:7070")) as ask,
        pytest.raises(NotSent, match="cannot be reached"),
    ):
        ask(ask.cluster.describe())


def test_brokers_of_this_machine_are_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with beside(scripted(answer())) as url:
        assert _is_ready(url)
