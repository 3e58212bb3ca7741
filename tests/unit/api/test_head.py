"""HEAD works where GET does: the same status and headers, and no body."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.testing.waits import LIMIT_S
from tests.helpers.http_server import HttpServer, served

PATHS = (
    "/healthz/live",
    "/healthz/ready",
    "/healthz/startup",
    "/metrics",
    "/v1/cluster",
    "/v1/topics",
    "/v1/topics/missing",
    "/v1/topics/orders/partitions/0/records?offset=0",
    "/openapi.json",
    "/docs",
    "/nowhere",
)


@pytest.mark.parametrize("path", PATHS)
@served(partitions=1)
async def test_head_answers_as_get_without_a_body(server: HttpServer, path: str) -> None:
    got, head = await server.call("GET", path), await server.call("HEAD", path)
    assert (head.status, head.body) == (got.status, b"")
    names = {"content-type", "content-length"} - ({"content-length"} if path == "/metrics" else set())
    assert {name: head.headers.get(name) for name in names} == {name: got.headers.get(name) for name in names}
    assert (await server.call("GET", "/healthz/live")).status == 200  # the connection goes on


@served(partitions=1)
async def test_head_of_an_event_stream_ends(server: HttpServer) -> None:
    async with asyncio.timeout(LIMIT_S):
        path = "/v1/topics/orders/partitions/0/records?offset=0"
        reply = await server.call("HEAD", path, sent={"Accept": "text/event-stream"})
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert (await server.call("GET", "/healthz/live")).status == 200


@served(partitions=1)
async def test_other_methods_are_still_refused(server: HttpServer) -> None:
    assert (await server.call("HEAD", "/v1/topics/orders:deleteRecords")).status in (404, 405)
    reply = await server.call("DELETE", "/v1/cluster")
    assert reply.status == 405
    assert "HEAD" in reply.headers["allow"]
