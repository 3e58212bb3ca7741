"""A stored batch whose inside is no records hides neither the records before it nor those behind it."""

from __future__ import annotations

import msgspec
import pytest

from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.wire import media_types
from tests.helpers.event_stream import PATH, stream
from tests.helpers.http_server import HttpServer, served
from tests.helpers.undecodable_batch import FIRST_RECORD, SECOND_RECORD, undecodable_batch

ONE, TWO = (build_batch([Record(value)], codec=Codec.NONE, timestamp_ms=1) for value in (b"one", b"two"))


async def store(server: HttpServer, *batches: bytes, validate: str = "false") -> int:
    """Produce to a new topic; the status."""
    await server.topic(partitions=1, message_timestamp_type="CreateTime", validate_records=validate)
    batch = {"Content-Type": media_types.BATCH}
    return (await server.call("POST", PATH, b"".join(batches), batch)).status


@pytest.mark.parametrize("at", [FIRST_RECORD, SECOND_RECORD])
@served()
async def test_a_topic_takes_undecodable_batches_on_request_only(server: HttpServer, at: int) -> None:
    # requirement: M5
    assert await store(server, ONE, undecodable_batch(at), validate="true") == 422
    assert (await server.get(PATH)).status == 204, "all of the request was refused"


@pytest.mark.parametrize(("at", "readable"), [(FIRST_RECORD, 1), (SECOND_RECORD, 2)])
@served()
async def test_a_reader_gets_what_precedes_the_damage(server: HttpServer, at: int, readable: int) -> None:
    # requirement: M3
    assert await store(server, ONE, undecodable_batch(at), TWO) == 200
    first = await server.get(PATH)
    assert (first.status, first.json["next_offset"]) == (200, readable)
    assert len(first.json["records"]) == readable
    refused = await server.get(f"{PATH}?offset={readable}")
    assert (refused.status, refused.code) == (422, "undecodable_batch")
    told = {name: refused.json[name] for name in ("topic", "partition", "offset", "next_offset")}
    assert told == {"topic": "orders", "partition": 0, "offset": readable, "next_offset": 4}
    behind = await server.get(f"{PATH}?offset=4")
    assert [record["value"] for record in behind.json["records"]] == ["two"]
    message = await server.get(f"/v1/topics/orders/messages/0/{readable}")
    assert (message.status, message.code) == (422, "undecodable_batch")


@pytest.mark.parametrize(("at", "readable"), [(FIRST_RECORD, 1), (SECOND_RECORD, 2)])
@served()
async def test_a_reader_may_skip_it(server: HttpServer, at: int, readable: int) -> None:
    assert await store(server, ONE, undecodable_batch(at), TWO) == 200
    page = (await server.get(f"{PATH}?undecodable=skip")).json
    assert [record["offset"] for record in page["records"]] == [*range(readable), 4]
    assert page["skipped"] == [{"offset": readable, "next_offset": 4}]
    alone = await server.get(f"{PATH}?undecodable=skip&offset=-1")
    assert [record["value"] for record in alone.json["records"]] == ["two"]


@served()
async def test_a_page_with_nothing_but_skipped_records_says_so(server: HttpServer) -> None:
    assert await store(server, undecodable_batch(FIRST_RECORD)) == 200
    page = await server.get(f"{PATH}?undecodable=skip")
    assert (page.status, page.json["records"], page.json["next_offset"]) == (200, [], 3)
    assert page.json["skipped"] == [{"offset": 0, "next_offset": 3}]


@served()
async def test_an_event_stream_ends_with_a_problem_or_skips(server: HttpServer) -> None:
    assert await store(server, ONE, undecodable_batch(SECOND_RECORD), TWO) == 200
    async with stream(server) as failing:
        seen = await failing.rest()
        assert failing.ids == [0, 1]
        problem = msgspec.json.decode(seen.partition(b"event: problem\ndata: ")[2].partition(b"\n")[0])
        assert (problem["code"], problem["offset"], problem["next_offset"]) == ("undecodable_batch", 2, 4)
    async with stream(server, "?undecodable=skip") as skipping:
        await skipping.until(rb"two")
        assert skipping.ids == [0, 1, 4]
        assert b'event: skipped\ndata: {"offset":2,"next_offset":4}\n\n' in skipping.seen
