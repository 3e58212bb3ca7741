"""``read_from=closest`` over HTTP: the parameters, and what the gateway gets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from partitions.values import FetchRequest, FetchResult
from raftlog.errors import NotLeader, ReplicaNotInSync
from raftlog.types import NodeId, TopicPartition
from raftlog.wire import media_types
from tests.helpers.event_stream import stream
from tests.helpers.fetching import PATH, fill
from tests.helpers.http_server import HttpServer, serve, served

# requirement: RP10


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[HttpServer, list[FetchRequest]]]:
    """A served topic with a record, and all reads of the gateway."""
    asked: list[FetchRequest] = []
    async with serve() as server:
        await fill(server, "a")
        fetch = server.cluster.gateway.fetch

        async def noted(target: TopicPartition, request: FetchRequest) -> FetchResult:
            asked.append(request)
            return replace(await fetch(target, request), served_by=NodeId(2))

        server.cluster.gateway.fetch = noted  # type: ignore[method-assign]
        yield server, asked


async def test_the_default_is_the_leader() -> None:
    async with watched() as (server, asked):
        assert (await server.get(f"{PATH}?offset=0")).status == 200
        assert (await server.get(f"{PATH}?offset=0&read_from=leader&min_offset=1")).status == 200
        assert [one.max_staleness_ms for one in asked] == [0, 0]
        assert [one.min_offset for one in asked] == [0, 1]


@pytest.mark.parametrize("accept", [media_types.JSON, media_types.BATCH])
async def test_the_bounds_come_to_the_gateway_and_the_response_names_the_broker(accept: str) -> None:
    async with watched() as (server, asked):
        query = "offset=0&read_from=closest&rack=east&max_staleness=2s&min_offset=1"
        reply = await server.get(f"{PATH}?{query}", Accept=accept)
        assert (reply.status, reply.headers["raftlog-served-by"]) == (200, "2")
        (request,) = asked
        assert (request.max_staleness_ms, request.rack, request.min_offset) == (2_000, "east", 1)
        assert not request.is_local
        await server.get(f"{PATH}?read_from=closest&route=none", Accept=accept)
        assert (asked[-1].max_staleness_ms, asked[-1].rack, asked[-1].is_local) == (10_000, None, True)


async def test_an_event_stream_may_come_from_any_replica() -> None:
    async with watched() as (server, asked):
        async with stream(server, "?read_from=closest&max_staleness=1s") as reading:
            assert b"event: record" in await reading.until(rb"event: record.*\n\n")
        assert {one.max_staleness_ms for one in asked} == {1_000}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("read_from=follower", "read_from"),
        ("read_from=closest&max_staleness=-5s", "max_staleness"),
        ("read_from=closest&max_staleness=0", "max_staleness"),
        ("read_from=closest&max_staleness=499ms", "max_staleness"),
        ("read_from=closest&max_staleness=25h", "max_staleness"),
        ("read_from=closest&max_staleness=soon", "max_staleness"),
        ("read_from=closest&rack=", "rack"),
        (f"read_from=closest&rack={'x' * 256}", "rack"),
        ("read_from=closest&route=redirect", "route"),
        ("read_from=closest&min_offset=-1", "min_offset"),
        ("min_offset=x", "min_offset"),
        ("min_offset=9223372036854775808", "min_offset"),
        ("rack=a", "rack"),
        ("max_staleness=5s", "max_staleness"),
        ("read_from=leader&max_staleness=5s", "max_staleness"),
    ],
)
async def test_wrong_parameters_are_refused_by_name(query: str, field: str) -> None:
    async with watched() as (server, asked):
        reply = await server.get(f"{PATH}?{query}")
        assert (reply.status, reply.code, reply.json["field"]) == (422, "invalid_request", field)
        assert asked == []


@pytest.mark.parametrize(
    "error", [ReplicaNotInSync("it lags", replica=1), NotLeader("no replica", leader=None)]
)
@served()
async def test_a_replica_that_cannot_serve_names_the_leader(server: HttpServer, error: NotLeader) -> None:
    await fill(server, "a")
    target = TopicPartition("orders", 0)
    server.cluster.gateway.faults[target] = error
    reply = await server.get(f"{PATH}?read_from=closest&route=none")
    assert (reply.status, reply.code) == (421, error.code)
    assert reply.json["leader"] == server.cluster.gateway.leader_of(target)
    assert reply.json["leader_http"]
    assert reply.json["retryable"] is True
