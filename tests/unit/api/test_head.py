"""HEAD works where GET does: the same status and headers, and no body."""

from __future__ import annotations

import asyncio
import re

from api.app import ROUTES
from api.resources import documentation
from broker.ports import Limits
from raftlog.testing.waits import LIMIT_S
from tests.helpers.http_server import HttpServer, served

# Those that no answer shares with another one, and how the body of a streamed one would be sent.
VARYING = ("date", "raftlog-request-id", "transfer-encoding")
EXISTING = {"topic": "orders", "partition": "0", "broker": "1", "code": "overloaded"}
PATHS = [
    *(
        route.path
        for route in (*ROUTES, *documentation.routes(ROUTES, "0", Limits()))
        if route.method == "GET"
    ),
    "/v1/topics/missing",
    "/nowhere",
]


@served(partitions=1)
async def test_head_of_each_route_answers_as_get_without_a_body(server: HttpServer) -> None:
    found = set()
    for route in PATHS:
        path = re.sub(r"\{(\w+)\}", lambda named: EXISTING.get(named[1], "some"), route)
        got, head = await server.call("GET", path), await server.call("HEAD", path)
        for reply in (got, head):
            for name in VARYING:
                reply.headers.pop(name, None)
            if reply.headers.get("content-length") == "0":
                del reply.headers["content-length"]  # of an empty body, which HEAD need not tell
        assert (head.status, head.headers, head.body) == (got.status, got.headers, b""), path
        found.add(got.status)
    assert {200, 303, 404} <= found
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
