"""What many readers of one partition's event stream cost together: counted exactly."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from types import CodeType, FrameType

import pytest

from api.http.recent_events import RecentEvents, RecentPage, ShownPage
from api.http.shared_reads import Asked, SharedReads
from api.resources.events import RECORDS_PER_WRITE
from partitions.values import FetchRequest, FetchResult
from raftlog.errors import NoLeader
from raftlog.types import Offset, Term, TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.event_stream import PATH, stream
from tests.helpers.fake_services import FakeGateway
from tests.helpers.http_server import HttpServer, served

ASKED: Asked = (TopicPartition("orders", 0), FetchRequest(position=Offset(7), wait_ms=1000))


@contextmanager
def counted_calls() -> Iterator[Counter[CodeType]]:
    """Calls of functions that are no coroutines, on this thread."""
    calls: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    ("readers_count", "records", "pages"),
    [(100, 2, 1), (10, 2 * RECORDS_PER_WRITE + 1, 3)],
    ids=["small", "of three pages"],
)
@served(partitions=1)
async def test_many_readers_of_a_batch_cost_one_read_and_one_encoding(
    server: HttpServer, readers_count: int, records: int, pages: int
) -> None:
    # requirement: N2
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
        assert {tuple(reader.ids) for reader in readers} == {tuple(range(records))}


@in_virtual_time
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


@in_virtual_time
async def test_a_reader_that_leaves_does_not_end_the_read_of_others() -> None:
    reads, gates = SharedReads(), _Gates()
    first, second = (reads.join(ASKED, gates.read) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gates.opened[0].set_result(_result(7))
    assert (await second).offset == 7


@in_virtual_time
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


@in_virtual_time
async def test_all_readers_get_the_error_of_their_read() -> None:
    reads, gates = SharedReads(), _Gates()
    waiting = [reads.join(ASKED, gates.read) for _ in range(2)]
    await asyncio.sleep(0)
    gates.opened[0].set_exception(NoLeader("none"))
    assert [type(error) for error in await asyncio.gather(*waiting, return_exceptions=True)] == [NoLeader] * 2


@in_virtual_time
async def test_a_page_that_its_builder_does_not_finish_is_built_by_one_that_waits() -> None:
    recent, place = RecentEvents(100), _FreePlace()
    others = [asyncio.create_task(_found_or_built(recent, place, b"other")) for _ in range(3)]
    with recent.page("key") as first:
        assert await first.found(place, is_short=False) is None
        await asyncio.sleep(0.01)  # the others wait for it
    async with asyncio.timeout(1):
        assert [await other for other in others] == [b"other"] * 3
    assert place.built == 1


@in_virtual_time
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
    return FetchResult(
        offset=Offset(offset),
        data=b"",
        next_offset=Offset(offset),
        log_start_offset=Offset(0),
        high_watermark=Offset(offset),
        leader_epoch=Term(1),
    )
