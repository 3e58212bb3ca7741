"""Event streams over a real connection."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import AsyncExitStack
from types import FrameType

import pytest

from api.http.recent_events import RecentEvents, ShownPage
from api.http.services import Limits
from api.resources.events import RECORDS_PER_WRITE
from raftlog.records.reader import open_batch
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.event_stream import PATH, stream
from tests.helpers.http_server import HttpServer, serve, served

ORDERS_0 = TopicPartition("orders", 0)


async def produce(server: HttpServer, *values: object) -> None:
    """A record for each value."""
    sent = await server.post(PATH, {"records": [{"value": value} for value in values]})
    assert sent.status == 200


@served(partitions=1)
async def test_a_stream_begins_at_the_earliest_record_and_follows(server: HttpServer) -> None:
    await produce(server, "a", "b")
    async with stream(server) as events:
        head = await events.until(rb"id: 1\n.*\n\n")
        assert b"200 OK" in head
        assert b"X-Accel-Buffering: no" in head
        assert b"Raftlog-Request-Id: " in head
        assert b'event: record\nid: 0\ndata: {"offset":0,' in head
        server.cluster.gateway.change_leader(ORDERS_0)
        await produce(server, {"lines": "a\nb"})
        await events.until(rb"id: 3\n.*\n\n")
        assert events.ids == [0, 1, 3]


@served(partitions=1)
async def test_a_stream_goes_on_after_the_last_id(server: HttpServer) -> None:
    await produce(server, *"abc")
    async with stream(server, "?offset=0", last_id="1") as events:
        await events.until(rb"id: 2\n.*\n\n")
        assert events.ids == [2]


@in_virtual_time
async def test_a_fetch_of_more_records_than_one_write_takes_is_streamed_whole() -> None:
    # requirement: C2
    count = 2 * RECORDS_PER_WRITE + 1
    async with serve() as server:
        await server.topic(partitions=1)
        await produce(server, *range(count))
        async with stream(server) as events:
            await events.until(rb"id: 0\n")
            await produce(server, "behind them")
            await events.until(rb"id: %d\n" % count)
            assert events.ids == list(range(count + 1))


@served(partitions=1)
async def test_pretty_printed_json_stays_one_line(server: HttpServer) -> None:
    raw = {"Content-Type": "application/octet-stream"}
    await server.call("POST", PATH, b'{\n  "a": 1\n}', raw)
    async with stream(server) as events:
        assert b'"value":{"a":1}' in await events.until(rb"id: 0\ndata: [^\n]*\n\n")


@in_virtual_time
async def test_a_heartbeat_comes_while_nothing_is_written() -> None:
    async with serve(Limits(heartbeat_ms=30)) as server:
        await server.topic(partitions=1)
        await produce(server, "a")
        async with stream(server, "?offset=latest") as events:
            await events.until(
                rb"(event: heartbeat\ndata: {\"next_offset\":1,\"high_watermark\":1}\n\n.*){3}"
            )
    assert Limits().heartbeat_ms == 15_000


@served(partitions=1)
async def test_a_deleted_topic_ends_the_stream(server: HttpServer) -> None:
    async with stream(server) as events:
        await events.until(rb"heartbeat")
        await server.call("DELETE", "/v1/topics/orders")
        assert re.search(rb'event: problem\ndata: {.*"code":"topic_not_found"', await events.rest())


@served(partitions=1)
async def test_a_reader_that_hangs_up_is_forgotten(server: HttpServer) -> None:
    async with stream(server) as events:
        await events.until(rb"heartbeat")
        assert server.cluster.gateway.waiting == 1
    async with asyncio.timeout(3):
        while server.cluster.gateway.waiting:
            await asyncio.sleep(0.01)
    assert b"raftlog_http_parked_requests 0.0" in (await server.get("/metrics")).body


@served(partitions=1)
async def test_what_is_wrong_is_a_problem_before_the_stream_begins(server: HttpServer) -> None:
    accept = {"Accept": "text/event-stream"}
    assert (await server.call("GET", f"{PATH}?offset=5", sent=accept)).status == 416
    assert (await server.call("GET", f"{PATH}?limit=5", sent=accept)).status == 422
    assert (await server.call("GET", PATH, sent=accept | {"Last-Event-ID": "x"})).status == 422
    assert (await server.call("GET", PATH.replace("orders", "nope"), sent=accept)).status == 404


@served(partitions=1)
async def test_streams_end_when_the_broker_stops(server: HttpServer) -> None:
    async with stream(server) as events:
        await events.until(rb"heartbeat")
        server.request_pipeline.close()
        assert b'"code":"draining"' in await events.rest()


@pytest.mark.parametrize(
    ("query", "accept"), [("?offset=latest&wait=50s", "application/json"), ("", "text/event-stream")]
)
@served(partitions=1)
async def test_nothing_waits_once_the_broker_has_begun_to_stop(
    server: HttpServer, query: str, accept: str
) -> None:
    server.request_pipeline.close()
    async with asyncio.timeout(3):
        answer = await server.get(PATH + query, Accept=accept)
    assert b'"code":"draining"' in answer.body


@served(partitions=1)
async def test_a_read_that_max_bytes_ends_is_gone_on_with(server: HttpServer) -> None:
    # requirement: C2
    for value in ("one", "two", "three"):
        assert (await server.post(PATH, {"records": [{"value": value}]})).status == 200
    async with stream(server, "?max_bytes=1") as events:
        await events.until(rb"three")
        assert events.ids == [0, 1, 2]


@in_virtual_time
async def test_readers_of_the_same_records_share_their_events() -> None:
    opened: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is open_batch.__code__ and frame.f_back is not None:
            opened.append(frame.f_back.f_code.co_name)

    async with serve() as server:
        await server.topic(partitions=1)
        async with AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(stream(server)) for _ in range(3)]
            for reader in readers:
                await reader.until(rb"heartbeat")
            sys.setprofile(note)
            try:
                await produce(server, "a", "b")
                said = [await reader.until(rb"id: 1\n.*\n\n") for reader in readers]
            finally:
                sys.setprofile(None)
            assert opened.count("pages") == 1
            assert len({part.partition(b"event: record")[2] for part in said}) == 1


@pytest.mark.parametrize(
    ("query", "ids", "value"),
    [("?offset=1", [1], b'"value":"b"'), ("?format=base64", [0, 1], b'"value":"Yg=="')],
)
@served(partitions=1)
async def test_readers_that_want_something_else_of_the_same_records_get_it(
    server: HttpServer, query: str, ids: list[int], value: bytes
) -> None:
    await produce(server, "a", "b")
    async with stream(server) as usual, stream(server, query) as other:
        await usual.until(rb"id: 1\n.*\n\n")
        assert usual.ids == [0, 1]
        assert value in await other.until(rb"id: 1\n.*\n\n")
        assert other.ids == ids


@served()
async def test_a_topic_that_is_made_again_shows_its_own_records(server: HttpServer) -> None:
    for value in ("old", "new"):
        await server.topic(partitions=1)
        await produce(server, value)
        async with stream(server) as events:
            assert value.encode() in await events.until(rb"id: 0\n.*\n\n")
        assert (await server.call("DELETE", "/v1/topics/orders")).status == 200


def test_events_are_kept_within_a_bound_and_the_oldest_go_first() -> None:
    recent = RecentEvents(10)
    for key in (1, 2, 3):
        recent.keep(key, ShownPage(b"abcd", key + 1, 0))
    recent.keep(4, ShownPage(bytes(11), 5, 0))
    found = [recent.get(key) for key in (1, 2, 3, 4)]
    assert [None if page is None else page.next_offset for page in found] == [None, 3, 4, None]
