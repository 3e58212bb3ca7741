"""Event streams over a real connection, and the work that their readers share: counted exactly."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import CodeType, FrameType

import pytest

from api.http.recent_events import RecentEvents, RecentPage, ShownPage
from api.http.shared_reads import Asked, SharedReads
from api.resources.events import RECORDS_PER_WRITE
from broker.ports import Limits
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import NoLeader
from raftlog.types import Offset, TopicPartition
from tests.helpers.event_stream import PATH, stream
from tests.helpers.fake_services import FakeGateway
from tests.helpers.fetching import fetch_result
from tests.helpers.http_server import HttpServer, served
from tests.helpers.profiled import profiled
from tests.helpers.virtual_time import eventually

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


@served(partitions=1)
async def test_pretty_printed_json_stays_one_line(server: HttpServer) -> None:
    raw = {"Content-Type": "application/octet-stream"}
    await server.call("POST", PATH, b'{\n  "a": 1\n}', raw)
    async with stream(server) as events:
        assert b'"value":{"a":1}' in await events.until(rb"id: 0\ndata: [^\n]*\n\n")


@served(Limits(heartbeat_ms=30), partitions=1)
async def test_a_heartbeat_comes_while_nothing_is_written_and_has_no_id(server: HttpServer) -> None:
    await produce(server, "a")
    beat = rb"event: heartbeat\ndata: {\"next_offset\":1,\"high_watermark\":1}\n\n"
    for query in ("?offset=latest", ""):
        async with stream(server, query) as events:
            seen = await events.until(rb"(%s.*){3}" % beat)
            assert b"id: 0\nevent: heartbeat" not in seen
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
    await eventually(lambda: not server.cluster.gateway.waiting)
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
async def test_nothing_waits_once_the_broker_stops(server: HttpServer, query: str, accept: str) -> None:
    server.request_pipeline.close()
    async with asyncio.timeout(20):
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


ASKED: Asked = (TopicPartition("orders", 0), FetchRequest(position=Offset(7), wait_ms=1000))


@contextmanager
def counted_calls() -> Iterator[Counter[CodeType]]:
    """Calls of functions that are no coroutines, on this thread."""
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    with profiled(note):
        yield calls


@pytest.mark.parametrize(
    ("readers_count", "records", "pages"),
    [(100, 2, 1), (10, 2 * RECORDS_PER_WRITE + 1, 3)],
    ids=["small", "of three pages"],
)
@served(partitions=1)
async def test_many_readers_of_a_batch_cost_one_read_and_one_encoding(
    server: HttpServer, readers_count: int, records: int, pages: int
) -> None:
    # requirement: C2, N2
    async with AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(stream(server)) for _ in range(readers_count)]
        for reader in readers:
            await reader.until(rb"heartbeat")
        assert server.cluster.gateway.waiting == 1
        with counted_calls() as calls:
            values = [{"value": number} for number in range(records)]
            assert (await server.post(PATH, {"records": values})).status == 200
            for reader in readers:
                await reader.until(rb"id: %d\n.*\n\n" % (records - 1))
        # The data of the batch are read once, and before each wait that there are none.
        assert calls[FakeGateway._data.__code__] <= 3
        assert calls[RecentPage.built.__code__] == pages
        await server.post(PATH, {"records": [{"value": "behind them"}]})
        for reader in readers:
            await reader.until(rb"id: %d\n" % records)
        assert {tuple(reader.ids) for reader in readers} == {tuple(range(records + 1))}


async def test_readers_of_the_same_share_a_read_and_no_others_do() -> None:
    reads, gates = SharedReads(), _Gates()
    first, second = (reads.join(ASKED, gates.read) for _ in range(2))
    other = reads.join((ASKED[0], FetchRequest(position=Offset(8), wait_ms=1000)), gates.read)
    await asyncio.sleep(0)
    assert len(gates.opened) == len(reads) == 2
    gates.opened[0].set_result(_result(7))
    assert (await first) is (await second)
    assert not other.done()
    gates.opened[1].set_result(_result(8))
    assert (await other).offset == 8
    assert len(reads) == 0


async def test_a_reader_that_leaves_does_not_end_the_read_of_others() -> None:
    reads, gates = SharedReads(), _Gates()
    first, second = (reads.join(ASKED, gates.read) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gates.opened[0].set_result(_result(7))
    assert (await second).offset == 7


async def test_a_read_that_all_readers_have_left_ends_and_the_next_reader_begins_another() -> None:
    reads, gates = SharedReads(), _Gates()
    first = reads.join(ASKED, gates.read)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    second = reads.join(ASKED, gates.read)
    await asyncio.sleep(0)
    assert gates.opened[0].cancelled()
    gates.opened[1].set_result(_result(7))
    assert (await second).offset == 7
    assert len(reads) == 0


async def test_all_readers_get_the_error_of_their_read() -> None:
    reads, gates = SharedReads(), _Gates()
    waiting = [reads.join(ASKED, gates.read) for _ in range(2)]
    await asyncio.sleep(0)
    gates.opened[0].set_exception(NoLeader("none"))
    assert [type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [NoLeader] * 2


async def test_a_page_that_its_builder_does_not_finish_is_built_by_one_that_waits() -> None:
    recent, place = RecentEvents(100), _FreePlace()
    others = [asyncio.create_task(_found_or_built(recent, place, b"other")) for _ in range(3)]
    with recent.page("key") as first:
        assert await first.found(place, is_short=False) is None
        await asyncio.sleep(0.01)  # the others wait for it
    async with asyncio.timeout(20):
        assert [await other for other in others] == [b"other"] * 3
    assert place.built == 1


async def test_a_page_that_is_not_kept_is_still_shared_by_those_that_wait() -> None:
    recent, place = RecentEvents(1), _FreePlace()
    found = await asyncio.gather(*(_found_or_built(recent, place, b"large") for _ in range(3)))
    assert found == [b"large"] * 3
    assert place.built == 1
    assert recent.get("key") is None


class _FreePlace:
    """A place that is always free, and the pages that were built."""

    def __init__(self) -> None:
        self.built = 0

    async def begin(self) -> None:
        await asyncio.sleep(0)


async def _found_or_built(recent: RecentEvents, place: _FreePlace, events: bytes) -> bytes:
    with recent.page("key") as page:
        found = await page.found(place, is_short=False)
        if found is None:
            await asyncio.sleep(0.01)  # on a thread, in production
            place.built += 1
            found = ShownPage(events, 1, 0)
            page.built(found)
        return found.events


class _Gates:
    """Reads that end when the test says so."""

    def __init__(self) -> None:
        self.opened: list[asyncio.Future[FetchResult]] = []

    async def read(self) -> FetchResult:
        gate: asyncio.Future[FetchResult] = asyncio.get_running_loop().create_future()
        self.opened.append(gate)
        return await gate


def _result(offset: int) -> FetchResult:
    return fetch_result(b"", offset, offset=offset)
