"""Records of some tags over HTTP: JSON, binary batches and event streams, and which tags are refused."""

from __future__ import annotations

import asyncio

import pytest

from api.resources import reading
from broker.ports import Limits
from raftlog.records.batch import Codec, split_batches
from raftlog.records.reader import read_records
from raftlog.wire import media_types
from raftlog.wire.limits import TAG_CHARACTERS_MAX, TAGS_MAX
from tests.helpers.event_stream import stream
from tests.helpers.fetching import PATH, offsets_of
from tests.helpers.http_server import HttpServer, served
from tests.helpers.tagged import tagged, tagged_batch

# requirement: A1, A2, A10

BINARY = {"Content-Type": media_types.BATCH}


async def store(server: HttpServer, *tags: list[str]) -> None:
    """One record for each list of tags, in one JSON request."""
    records = [{"value": f"v{number}", "tags": each} for number, each in enumerate(tags)]
    assert (await server.post(PATH, {"records": records})).status == 200


async def store_foreign(server: HttpServer, *tags: list[str]) -> None:
    """The same by a producer that does not list tags."""
    records = [tagged(b"f%d" % number, *each) for number, each in enumerate(tags)]
    batch = tagged_batch(*records, codec=Codec.SNAPPY, lists_tags=False)
    assert (await server.call("POST", PATH, batch, BINARY)).status == 200


@served(partitions=1)
async def test_json_has_exactly_the_matching_records_of_all_producers(server: HttpServer) -> None:
    await store(server, ["new"], ["paid", "vip"], [], ["refunded"])
    await store_foreign(server, ["new"], [], ["paid"])
    await store(server, ["new"], ["paid2"], ["pai"])
    got = await server.get(f"{PATH}?tags=paid,refunded")
    assert offsets_of(got) == [1, 3, 6]
    assert got.json["records"][0]["tags"] == ["paid", "vip"]
    assert (got.json["next_offset"], got.json["up_to_date"]) == (10, True)
    assert offsets_of(await server.get(f"{PATH}?tags=paid&limit=1")) == [1]
    second = await server.get(f"{PATH}?tags=paid&limit=1&offset=2")
    assert offsets_of(second) == [6]
    none = await server.get(f"{PATH}?tags=nothing")
    assert (none.status, none.headers["raftlog-next-offset"]) == (204, "10")


@served(partitions=1)
async def test_binary_has_the_matching_parts_and_foreign_batches_whole(server: HttpServer) -> None:
    await store(server, ["new"], ["paid"], ["new"])
    await store_foreign(server, ["new"], ["paid"])
    await store(server, ["new"])
    got = await server.get(f"{PATH}?tags=paid", Accept=media_types.BATCH)
    batches = split_batches(got.body)
    assert [record.offset for batch in batches for record in read_records(batch)] == [1, 3, 4]
    assert got.headers["raftlog-next-offset"] == "6"


@served(partitions=1)
async def test_raw_bodies_have_tags_too(server: HttpServer) -> None:
    for tags in ("new", "paid, vip", ""):
        raw = {"Content-Type": "application/octet-stream", "Raftlog-Tags": tags}
        assert (await server.call("POST", PATH, b"\x00opaque\xff", raw)).status == 200
    got = await server.get(f"{PATH}?tags=vip")
    assert offsets_of(got) == [1]
    assert got.json["next_offset"] == 3


@served(partitions=1)
async def test_a_wait_ends_with_the_first_match(server: HttpServer) -> None:
    waiting = asyncio.create_task(server.get(f"{PATH}?tags=paid&wait=20s"))
    for tags in (["new"], ["new"], ["paid"]):
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await store(server, tags)
    assert offsets_of(await waiting) == [2]


@served(partitions=1)
async def test_foreign_records_end_a_request(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(6):
        await store_foreign(server, ["new"])
    size = len((await server.get(f"{PATH}?max_bytes=1", Accept=media_types.BATCH)).body)
    monkeypatch.setattr(reading, "LOOKED_AT_BYTES_MAX", 2 * size)
    got = await server.get(f"{PATH}?tags=paid&max_bytes=1")
    assert (got.status, got.headers["raftlog-next-offset"]) == (204, "2")


@served(Limits(heartbeat_ms=50), partitions=1)
async def test_an_event_stream_has_the_matching_records_and_heartbeats(server: HttpServer) -> None:
    await store(server, ["new"], ["paid"], ["new"])
    await store_foreign(server, ["new"], ["paid"])
    async with stream(server, "?tags=paid") as events:
        await events.until(rb"id: 4\n.*\n\n")
        assert events.ids == [1, 4]
        await store(server, ["new"], ["new"])
        seen = await events.until(rb'id: 6\nevent: heartbeat\ndata: {"next_offset":7')
        assert b'"v2"' not in seen
        await store(server, ["paid"])
        await events.until(rb"id: 7\n.*\n\n")
    async with stream(server, "?tags=paid", last_id="6") as events:
        await events.until(rb"id: 7\n.*\n\n")
        assert 4 not in events.ids


@served(Limits(heartbeat_ms=100), partitions=1)
async def test_a_stream_in_which_foreign_records_are_skipped_is_not_silent(server: HttpServer) -> None:
    async with stream(server, "?tags=paid&max_bytes=1") as events:

        async def produce() -> None:
            while True:
                await store_foreign(server, ["new"])
                await asyncio.sleep(0.02)

        producing = asyncio.create_task(produce())
        try:
            await events.until(rb"id: \d+\nevent: heartbeat\n.*event: heartbeat\n")
        finally:
            producing.cancel()


BAD_TAGS = [
    "",
    ",",
    "a,,b",
    "a,",
    "x" * (TAG_CHARACTERS_MAX + 1),
    "a%00b",
    "a%0Ab",
    "a%0A",
    "%7F",
    ",".join(f"t{number}" for number in range(TAGS_MAX + 1)),
    ",".join(f"t{number}" for number in range(100)),
]


@pytest.mark.parametrize("tags", BAD_TAGS)
@served(partitions=1)
async def test_a_list_that_has_no_tags_is_refused(server: HttpServer, tags: str) -> None:
    for accept in (media_types.JSON, media_types.BATCH, media_types.EVENT_STREAM):
        got = await server.get(f"{PATH}?tags={tags}", Accept=accept)
        assert (got.status, got.code, got.json["field"]) == (422, "invalid_request", "tags")
        assert got.json["detail"].startswith("tags: ")


COMBINED = [
    ("tags=paid,refunded&tags_all=eu", [1, 3]),
    ("tags_all=paid,eu", [1]),
    ("tags_none=paid", [2, 3, 5]),
    ("tags=paid&tags_none=eu", [0, 4]),
    ("tags_all=eu&tags_none=paid,refunded", [5]),
]


@pytest.mark.parametrize(("query", "expected"), COMBINED)
@served(Limits(heartbeat_ms=50), partitions=1)
async def test_tags_are_combined(server: HttpServer, query: str, expected: list[int]) -> None:
    await store(server, ["paid"], ["paid", "eu"], [], ["refunded", "eu"])
    await store_foreign(server, ["paid", "test"], ["eu"])
    assert offsets_of(await server.get(f"{PATH}?{query}")) == expected
    got = await server.get(f"{PATH}?{query}", Accept=media_types.BATCH)
    sent = {record.offset for batch in split_batches(got.body) for record in read_records(batch)}
    assert sent == {*expected, 4, 5}, "foreign batches are sent whole"
    async with stream(server, f"?{query}") as events:
        await events.until(rb"event: heartbeat")
        assert [each for each in events.ids if each in range(5)] == [each for each in expected if each < 5]


@pytest.mark.parametrize("accept", [media_types.JSON, media_types.BATCH, media_types.EVENT_STREAM])
@served(partitions=1)
async def test_selections_that_cannot_be_are_refused(server: HttpServer, accept: str) -> None:
    many = ",".join(f"t{number}" for number in range(20))
    for query, field, said in (
        ("tags_all=", "tags_all", "the list has no tag"),
        ("tags_none=a,,b", "tags_none", "'' is not a tag"),
        ("tags=a,b&tags_none=b", "tags_none", "tags_none: 'b' is in tags, too"),
        ("tags_all=a,b&tags_none=b", "tags_none", "tags_none: 'b' is in tags_all, too"),
        (
            f"tags_all={many}&tags_none=a{many}",
            "tags_all",
            "tags_all and tags_none have 40 tags; the maximum is 32",
        ),
    ):
        got = await server.get(f"{PATH}?{query}", Accept=accept)
        assert (got.status, got.code, got.json["field"]) == (422, "invalid_request", field)
        assert said in got.json["detail"]


@served(partitions=1)
async def test_the_last_records_cannot_be_asked_for_by_tags(server: HttpServer) -> None:
    await store(server, ["paid"])
    for accept in (media_types.JSON, media_types.BATCH):
        got = await server.get(f"{PATH}?tags=paid&offset=-5", Accept=accept)
        assert (got.status, got.json["field"]) == (422, "offset")


@served(partitions=1)
async def test_as_many_tags_as_allowed_are_taken(server: HttpServer) -> None:
    tags = [f"{number}-{'x' * 200}" for number in range(TAGS_MAX)]
    await store(server, tags, [])
    got = await server.get(f"{PATH}?tags={','.join(tag for tag in tags[:30])}")
    assert offsets_of(got) == [0]
    assert got.json["records"][0]["tags"] == tags


@pytest.mark.parametrize(
    "tags",
    [
        [f"t{number}" for number in range(TAGS_MAX + 1)],
        ["a\nb"],
        ["a\n"],
        ["a\u0000"],
        ["\u007f"],
        [""],
        ["a,b"],
    ],
)
@served(partitions=1)
async def test_records_with_such_tags_are_refused(server: HttpServer, tags: list[str]) -> None:
    got = await server.post(PATH, {"records": [{"value": 1, "tags": tags}]})
    assert (got.status, got.code) == (422, "invalid_record")
    assert "tags" in str(got.json["errors"])
