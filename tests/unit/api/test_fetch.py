"""Fetch over HTTP: positions, formats, waiting, and what JSON does not show."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from api.resources import group_poll
from broker.ports import Limits
from partitions.values import FetchRequest, FetchResult
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.compaction import gap_batch, retain
from raftlog.records.reader import read_records
from raftlog.records.record_checksum import record_crc
from raftlog.types import NodeId, TopicPartition
from raftlog.wire import media_types
from tests.helpers.event_stream import stream
from tests.helpers.fetching import PATH, fill, offsets_of, records_of
from tests.helpers.http_server import HttpServer, serve, served
from tests.helpers.record_checksums import canonical_bytes, crc32c
from tests.helpers.undecodable_batch import FIRST_RECORD, SECOND_RECORD, undecodable_batch
from tests.helpers.virtual_time import eventually

OFFSETS = "/v1/topics/orders/partitions/0/offsets"
ORDERS_0 = TopicPartition("orders", 0)


async def store(server: HttpServer, *values: bytes | None) -> None:
    """Values as bytes, in one batch."""
    batch = build_batch([Record(value) for value in values], codec=Codec.ZSTD, timestamp_ms=5)
    assert (await server.call("POST", PATH, batch, {"Content-Type": media_types.BATCH})).status == 200


@served()
async def test_batches_that_another_broker_sent_leave_as_they_came(server: HttpServer) -> None:
    await fill(server, "a", "b")
    gateway = server.cluster.gateway
    fetch = gateway.fetch

    async def forwarded(target: TopicPartition, request: FetchRequest) -> FetchResult:
        result = await fetch(target, request)
        return replace(result, data=memoryview(result.data))  # of a frame, not a copy

    own = await server.get(PATH, Accept=media_types.BATCH)
    gateway.fetch = forwarded  # type: ignore[method-assign]
    got = await server.get(PATH, Accept=media_types.BATCH)
    assert got.body == own.body
    assert len(split_batches(got.body)) == 2


@served()
async def test_every_field_of_a_record_is_shown(server: HttpServer) -> None:
    # requirement: M1
    await server.topic(partitions=1, message_timestamp_type="CreateTime")
    record = {
        "key": "k",
        "value": {"id": 1},
        "headers": {"a": "b"},
        "tags": ["t"],
        "timestamp": 1767225600000,
    }
    await server.post(PATH, {"records": [record]})
    got = await server.get(PATH)
    (shown,) = records_of(got)
    (batch,) = server.cluster.gateway.log(ORDERS_0).batches
    size = shown.pop("size_bytes")
    assert isinstance(size, int)
    assert 0 < size < len(batch.data)
    as_stored = {**shown, "value": '{"id":1}'}
    assert shown == {
        "offset": 0,
        "timestamp": 1767225600000,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": {"id": 1},
        "encoding": "json",
        "headers": {"a": "b"},
        "tags": ["t"],
        "crc": batch.header.crc,
        "record_crc": crc32c(canonical_bytes(as_stored)),
    }
    answer = got.json
    del answer["records"]
    assert answer == {
        "topic": "orders",
        "partition": 0,
        "leader_epoch": 7,
        "log_start_offset": 0,
        "high_watermark": 1,
        "next_offset": 1,
        "up_to_date": True,
    }


@served()
async def test_a_reader_computes_the_checksum_of_each_record_from_its_json(server: HttpServer) -> None:
    # requirement: M1
    await server.topic(partitions=1)
    headers = (("b", b"2"), ("a", None), ("b", b"1"), ("raftlog.tag", b"t"), ("c", b"\xff"))
    records = [
        Record(b"\xff\x00", b"key"),
        Record(None, b"\xfe", headers),
        Record(b"", None),
        Record(b"{ }", b"", headers[:2]),
    ]
    batch = build_batch(records, codec=Codec.ZSTD, timestamp_ms=5)
    assert (await server.call("POST", PATH, batch, {"Content-Type": media_types.BATCH})).status == 200
    for query in ("format=base64", "offset=1&limit=1", "offset=2&format=utf8"):
        for shown in records_of(await server.get(f"{PATH}?{query}")):
            assert shown["record_crc"] == crc32c(canonical_bytes(shown)), shown
    one = await server.get("/v1/topics/orders/partitions/0/records/1")
    assert one.json["record_crc"] == crc32c(canonical_bytes(one.json))
    async with server.session.get(server.url + PATH, headers={"Accept": media_types.BATCH}) as answer:
        (found,) = split_batches(await answer.read())
    assert [record_crc(each.key, each.value, each.headers) for each in read_records(found)] == [
        record_crc(each.key, each.value, each.headers) for each in records
    ]


@pytest.mark.parametrize(
    ("query", "offsets", "next_offset"),
    [
        ("", [0, 1, 2, 3, 4], 5),
        ("offset=2", [2, 3, 4], 5),
        ("offset=earliest&limit=2", [0, 1], 2),
        ("offset=-2", [3, 4], 5),
        ("offset=-2&limit=1", [3], 4),
        ("offset=-99", [0, 1, 2, 3, 4], 5),
        ("offset=timestamp:2000-01-01T00:00:00Z", [0, 1, 2, 3, 4], 5),
        ("offset=timestamp:946684800000", [0, 1, 2, 3, 4], 5),
        ("offset=0&max_bytes=1", [0], 1),
    ],
)
@served()
async def test_a_fetch_begins_where_it_is_told(
    server: HttpServer, query: str, offsets: list[int], next_offset: int
) -> None:
    # requirement: C1
    await fill(server, *range(5))
    got = await server.get(f"{PATH}?{query}")
    assert offsets_of(got) == offsets
    assert got.json["next_offset"] == next_offset
    assert got.json["up_to_date"] is (next_offset == 5)
    assert got.headers["raftlog-next-offset"] == str(next_offset)


@pytest.mark.parametrize(
    "query", ["offset=latest", "offset=timestamp:2999-01-01T00:00:00%2B02:00", "offset=1"]
)
@served()
async def test_nothing_there_is_204_and_says_where_to_go_on(server: HttpServer, query: str) -> None:
    await fill(server, "a")
    got = await server.get(f"{PATH}?{query}")
    assert (got.status, got.body) == (204, b"")
    names = ("raftlog-next-offset", "raftlog-high-watermark", "raftlog-log-start-offset")
    assert [got.headers[name] for name in names] == ["1", "1", "0"]
    binary = await server.get(f"{PATH}?{query}", Accept=media_types.BATCH)
    assert (binary.status, binary.headers["raftlog-next-offset"]) == (204, "1")


@served()
async def test_above_the_end_is_416_and_below_the_start_is_410(server: HttpServer) -> None:
    # requirement: RT4
    await fill(server, *range(4))
    above = await server.get(f"{PATH}?offset=9")
    assert (above.status, above.code) == (416, "offset_out_of_range")
    assert (above.json["start"], above.json["end"]) == (0, 4)
    server.cluster.gateway.cut(ORDERS_0, 2)
    below = await server.get(f"{PATH}?offset=1")
    assert (below.status, below.code) == (410, "offset_out_of_range")
    assert (below.json["start"], below.json["offset"]) == (2, 1)
    gone = await server.get("/v1/topics/orders/partitions/0/records/1")
    assert gone.status == 410


@pytest.mark.parametrize(
    ("stored", "format", "value", "encoding"),
    [
        (b'{"a": 1}', "auto", {"a": 1}, "json"),
        (b"[1,2]", "auto", [1, 2], "json"),
        (b"17", "auto", "17", "utf8"),
        (b"text", "auto", "text", "utf8"),
        (b"{broken", "auto", "{broken", "utf8"),
        (b"{" * 9 + b"[" * 5000, "auto", "{" * 9 + "[" * 5000, "utf8"),
        (b"[" * 5000 + b"]" * 5000, "auto", "[" * 5000 + "]" * 5000, "utf8"),
        (b'{"a":NaN}', "auto", '{"a":NaN}', "utf8"),
        (b'{"a":"\xff"}', "auto", "eyJhIjoi/yJ9", "base64"),
        (b"\xff", "auto", "/w==", "base64"),
        (b"", "auto", "", "utf8"),
        (b'{"a": 1}', "utf8", '{"a": 1}', "utf8"),
        (b"17", "json", 17, "json"),
        (b'"a"', "json", "a", "json"),
        (b"text", "base64", "dGV4dA==", "base64"),
        (None, "auto", None, "utf8"),
        (None, "json", None, "utf8"),
    ],
)
@served(prepare=fill)
async def test_format_says_how_values_stand_in_json(
    server: HttpServer, stored: bytes | None, format: str, value: object, encoding: str
) -> None:
    await store(server, stored)
    (record,) = records_of(await server.get(f"{PATH}?format={format}"))
    assert (record["value"], record["encoding"]) == (value, encoding)


@pytest.mark.parametrize(("stored", "format"), [(b"\xff", "utf8"), (b"\xff", "json"), (b"text", "json")])
@served(prepare=fill)
async def test_a_value_that_cannot_be_shown_so_names_its_offset(
    server: HttpServer, stored: bytes, format: str
) -> None:
    await store(server, b"1", stored)
    refused = await server.get(f"{PATH}?format={format}")
    assert (refused.status, refused.code) == (422, "invalid_record")
    assert "offset 1" in str(refused.json["detail"])


@served(prepare=fill)
async def test_keys_that_are_no_text_are_base64_and_can_be_sent_back(server: HttpServer) -> None:
    record = {"key": "/w==", "key_encoding": "base64", "value": "x"}
    assert (await server.post(PATH, {"records": [record]})).status == 200
    (got,) = records_of(await server.get(PATH))
    assert (got["key"], got["key_encoding"]) == ("/w==", "base64")


@served()
async def test_control_records_are_stepped_over(server: HttpServer) -> None:
    await fill(server, "a")
    for _ in range(3):
        server.cluster.gateway.change_leader(ORDERS_0)
    got = await server.get(PATH)
    assert (offsets_of(got), got.json["next_offset"], got.json["up_to_date"]) == ([0], 4, True)
    async with asyncio.timeout(20):
        only_control = await server.get(f"{PATH}?offset=1")
    assert (only_control.status, only_control.headers["raftlog-next-offset"]) == (204, "4")
    last = await server.get(f"{PATH}?offset=-1")
    assert offsets_of(last) == [0]
    await server.post(PATH, {"records": [{"value": "b"}]})
    assert offsets_of(await server.get(f"{PATH}?offset=1&max_bytes=1")) == [4]
    binary = await server.get(f"{PATH}?offset=1", Accept=media_types.BATCH)
    assert [batch.header.is_control for batch in split_batches(binary.body)] == [True] * 3 + [False]


@served()
async def test_a_long_poll_is_woken_by_a_record_and_not_by_a_control_record(server: HttpServer) -> None:
    # requirement: C3
    await fill(server, "a")
    poll = asyncio.create_task(server.get(f"{PATH}?offset=1&wait=50s"))
    await until_waiting(server, 1)
    server.cluster.gateway.change_leader(ORDERS_0)
    await asyncio.sleep(0.05)
    assert not poll.done()
    await server.post(PATH, {"records": [{"value": "hello"}]})
    async with asyncio.timeout(20):
        got = await poll
    assert [record["value"] for record in records_of(got)] == ["hello"]


@served()
async def test_a_poll_of_a_group_passes_control_records(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that sends no positions would begin before them each time."""
    # requirement: C2
    monkeypatch.setattr(group_poll, "BYTES_PER_PARTITION", 1)
    await server.topic("orders", 1)
    for _ in range(3):
        server.cluster.gateway.change_leader(ORDERS_0)
    await server.post(PATH, {"records": [{"value": "hello"}]})
    asked = {"topics": ["orders"], "wait": "0s"}
    polled = await server.post("/v1/groups/mail/members/m-1:poll", asked)
    assert [record["offset"] for record in polled.json["records"]] == [3]
    assert [each["offset"] for each in polled.json["positions"]] == [4]


@served()
async def test_a_long_poll_with_nothing_ends_in_its_time(server: HttpServer) -> None:
    # requirement: C3
    await fill(server, "a")
    began = asyncio.get_running_loop().time()
    got = await server.get(f"{PATH}?offset=1&wait=200ms")
    assert (got.status, got.headers["raftlog-next-offset"]) == (204, "1")
    assert 0.19 < asyncio.get_running_loop().time() - began < 1


@served()
async def test_min_bytes_waits_for_more(server: HttpServer) -> None:
    # requirement: B4
    await fill(server, "x" * 100)
    poll = asyncio.create_task(server.get(f"{PATH}?offset=0&wait=5s&min_bytes=300"))
    await until_waiting(server, 1)
    await server.post(PATH, {"records": [{"value": "x" * 100}]})
    assert offsets_of(await poll) == [0, 1]


async def test_wait_is_capped_below_the_idle_time_of_load_balancers() -> None:
    async with serve(Limits(wait_ms_max=50)) as server:
        await fill(server, "a")
        began = asyncio.get_running_loop().time()
        assert (await server.get(f"{PATH}?offset=1&wait=1h")).status == 204
        assert asyncio.get_running_loop().time() - began < 2
    assert Limits().wait_ms_max == 55_000


@served()
async def test_deleting_a_topic_ends_a_long_poll_at_once(server: HttpServer) -> None:
    await fill(server, "a")
    poll = asyncio.create_task(server.get(f"{PATH}?offset=1&wait=30s"))
    await until_waiting(server, 1)
    await server.call("DELETE", "/v1/topics/orders")
    async with asyncio.timeout(20):
        assert (await poll).code == "topic_not_found"


@served()
async def test_a_client_that_hangs_up_frees_its_parked_request(server: HttpServer) -> None:
    await fill(server, "a")
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET {PATH}?offset=1&wait=50s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await until_waiting(server, 1)
    writer.close()
    await until_waiting(server, 0)
    metrics = await server.get("/metrics")
    assert b"raftlog_http_parked_requests 0.0" in metrics.body
    assert b'status="499"' in metrics.body


@served(Limits(parked_client_max=2))
async def test_parked_requests_are_counted(server: HttpServer) -> None:
    await fill(server, "a")
    polls = [asyncio.create_task(server.get(f"{PATH}?offset=1&wait=500ms")) for _ in range(2)]
    await until_waiting(server, 2)
    third = await server.get(f"{PATH}?offset=1&wait=1s")
    assert (third.status, third.code) == (429, "quota_exceeded")
    assert (await server.get(f"{PATH}?offset=1")).status == 204
    assert [(await poll).status for poll in polls] == [204, 204]


@served()
async def test_a_message_has_a_permalink(server: HttpServer) -> None:
    await fill(server, "a", "b")
    got = await server.get("/v1/topics/orders/partitions/0/records/1")
    assert (got.json["value"], got.json["topic"], got.json["partition"], got.json["offset"]) == (
        "b",
        "orders",
        0,
        1,
    )
    unwritten = await server.get("/v1/topics/orders/partitions/0/records/2")
    assert (unwritten.status, unwritten.code) == (416, "offset_out_of_range")
    server.cluster.gateway.change_leader(ORDERS_0)
    control = await server.get("/v1/topics/orders/partitions/0/records/2")
    assert (control.status, control.code) == (404, "record_not_found")


@pytest.mark.parametrize(
    ("at", "offset"),
    [
        ("earliest", 0),
        ("latest", 3),
        ("2000-01-01T00:00:00Z", 0),
        ("2999-01-01T00:00:00+02:00", 3),
        ("timestamp:2000-01-01T00:00:00Z", 0),
        ("-1", 2),
    ],
)
@served()
async def test_offsets_are_found_by_time(server: HttpServer, at: str, offset: int) -> None:
    await fill(server, *range(3))
    got = await server.get(f"{OFFSETS}?at={at}")
    assert got.json["offset"] == offset
    assert (got.json["timestamp"] is None) is (offset == 3)


@served()
async def test_route_holds_for_reads_too(server: HttpServer) -> None:
    await fill(server, "a")
    server.cluster.gateway.leaders[ORDERS_0] = NodeId(3)
    assert (await server.get(PATH)).headers["raftlog-leader"] == "127.0.0.1:7072"
    assert (await server.get(f"{PATH}?route=none")).code == "not_leader"
    assert (
        (await server.get(f"{PATH}?route=redirect")).headers["location"].startswith("http://127.0.0.1:7072/")
    )


@served(prepare=fill)
async def test_a_wait_does_not_begin_again_when_a_record_of_a_broker_comes(server: HttpServer) -> None:
    gateway, fetch, waits_ms = server.cluster.gateway, server.cluster.gateway.fetch, []

    async def noted(target: TopicPartition, request: FetchRequest) -> FetchResult:
        waits_ms.append(request.wait_ms)
        return await fetch(target, request)

    gateway.fetch = noted  # type: ignore[method-assign]
    waiting = asyncio.create_task(server.get(f"{PATH}?wait=1s"))
    await until_waiting(server, 1)
    await asyncio.sleep(0.5)
    gateway.change_leader(ORDERS_0)
    assert (await waiting).status == 204
    assert waits_ms[0] == 1000
    assert 0 <= waits_ms[1] <= 500


async def until_waiting(server: HttpServer, count: int) -> None:
    """Until that many reads are parked in the gateway."""
    await eventually(lambda: server.cluster.gateway.waiting == count)


LARGE = "x" * 1_000


@pytest.mark.parametrize(
    ("query", "offsets", "next_offset"),
    [
        ("offset=-1", [3], 8),
        ("offset=-2", [2, 3], 8),
        ("offset=-9", [0, 1, 2, 3], 8),
        ("offset=-2&limit=1", [2], 3),
        ("offset=-1&max_bytes=2000", [3], 8),
        ("offset=-3&max_bytes=2000", [1], 2),  # begins with the third to last; the rest follows at 2
        ("offset=-1&max_bytes=500", [3], 8),
        ("offset=-2&max_bytes=500", [2], 3),
    ],
)
@served()
async def test_control_records_do_not_take_the_place_of_the_newest(
    server: HttpServer, query: str, offsets: list[int], next_offset: int
) -> None:
    # requirement: C2
    await fill(server, LARGE, LARGE, LARGE, "small")
    for _ in range(4):
        server.cluster.gateway.change_leader(ORDERS_0)
    got = await server.get(f"{PATH}?{query}")
    assert got.status == 200
    assert (offsets_of(got), got.json["next_offset"]) == (offsets, next_offset)
    assert got.json["up_to_date"] is (next_offset == 8)
    begins = await server.get(f"{PATH.removesuffix('records')}offsets?at={query.split('&')[0][7:]}")
    assert begins.json["offset"] == max(0, 4 + int(query.split("&")[0][7:])), "the same for who reads batches"


@pytest.mark.parametrize(
    ("offset", "status"),
    [("earliest", 200), ("-9", 200), ("-1", 200), ("timestamp:1", 200), ("0", 410)],
)
@served(prepare=fill)
async def test_only_who_names_an_offset_is_told_that_it_is_deleted(
    server: HttpServer, offset: str, status: int
) -> None:
    """A control record comes first, so every one of these fetches has to go on reading behind it."""
    # requirement: C2
    gateway, fetch, has_read = server.cluster.gateway, server.cluster.gateway.fetch, False
    gateway.change_leader(ORDERS_0)

    async def before_retention(target: TopicPartition, request: FetchRequest) -> FetchResult:
        nonlocal has_read
        if has_read:
            return await fetch(target, request)
        has_read = True
        result = await fetch(target, request)
        for value in ("deleted", "kept"):
            await server.post(PATH, {"records": [{"value": value}]})
        gateway.cut(ORDERS_0, gateway.log(ORDERS_0).end - 1)
        return result

    gateway.fetch = before_retention  # type: ignore[method-assign]
    got = await server.get(f"{PATH}?offset={offset}&wait=50ms")
    assert got.status == status, got.body
    if status == 200:
        assert offsets_of(got) == [gateway.log(ORDERS_0).end - 1]


KEPT = [4, 6, 20]


async def compacted(server: HttpServer) -> None:
    """Offsets 0..20, of which three are left: a gap batch, a batch with gaps, a gap batch, a whole batch."""
    await server.topic("orders", 1, **{"cleanup.policy": "compact"})
    for count in (3, 5, 12, 1):
        records = [{"key": "k", "value": number} for number in range(count)]
        assert (await server.post(PATH, {"records": records})).status == 200
    log = server.cluster.gateway.log(ORDERS_0)
    assert [batch.base_offset for batch in log.batches] == [0, 3, 8, 20]
    log.batches[0] = gap_batch(0, 2, 1, None)
    log.batches[1] = retain(log.batches[1], {4, 6})
    log.batches[2] = gap_batch(8, 19, 1, None)


@served(prepare=compacted)
async def test_a_fetch_from_any_offset_goes_on_at_the_next_record(server: HttpServer) -> None:
    for offset in range(21):
        got = await server.get(f"{PATH}?offset={offset}&max_bytes=1")
        assert got.status == 200
        assert offsets_of(got)[0] == min(kept for kept in KEPT if kept >= offset)
        whole = await server.get(f"{PATH}?offset={offset}")
        assert offsets_of(whole) == [kept for kept in KEPT if kept >= offset]
        assert whole.headers["raftlog-next-offset"] == "21"
        one = await server.get(f"{PATH}?offset={offset}&limit=1")
        assert offsets_of(one) == offsets_of(whole)[:1]
    assert (await server.get(f"{PATH}?offset=21")).status == 204


@served(prepare=compacted)
async def test_a_message_at_a_removed_offset_is_not_found(server: HttpServer) -> None:
    for offset in range(21):
        got = await server.get(f"/v1/topics/orders/partitions/0/records/{offset}")
        if offset in KEPT:
            assert (got.status, got.json["offset"]) == (200, offset)
        else:
            assert (got.status, got.code) == (404, "record_not_found")


@served(prepare=compacted)
async def test_a_record_without_a_key_is_refused_with_its_place(server: HttpServer) -> None:
    got = await server.post(PATH, {"records": [{"key": "k", "value": 1}, {"value": 2}]})
    assert (got.status, got.code) == (422, "invalid_record")
    assert "cleanup.policy" in str(got.json["detail"])
    assert got.json["errors"] == ["/records/1/key: is missing"]


ONE, TWO = (build_batch([Record(value)], codec=Codec.NONE, timestamp_ms=1) for value in (b"one", b"two"))


async def store_batches(server: HttpServer, *batches: bytes, validate: str = "false") -> int:
    """Produce to a new topic; the status."""
    await server.topic(partitions=1, message_timestamp_type="CreateTime", validate_records=validate)
    batch = {"Content-Type": media_types.BATCH}
    return (await server.call("POST", PATH, b"".join(batches), batch)).status


@pytest.mark.parametrize("at", [FIRST_RECORD, SECOND_RECORD])
@served()
async def test_a_topic_takes_undecodable_batches_on_request_only(server: HttpServer, at: int) -> None:
    # requirement: M5
    assert await store_batches(server, ONE, undecodable_batch(at), validate="true") == 422
    assert (await server.get(PATH)).status == 204, "all of the request was refused"


@pytest.mark.parametrize(("at", "readable"), [(FIRST_RECORD, 1), (SECOND_RECORD, 2)])
@served()
async def test_a_reader_gets_what_precedes_the_damage(server: HttpServer, at: int, readable: int) -> None:
    # requirement: M3
    assert await store_batches(server, ONE, undecodable_batch(at), TWO) == 200
    first = await server.get(PATH)
    assert (first.status, first.json["next_offset"]) == (200, readable)
    assert len(first.json["records"]) == readable
    refused = await server.get(f"{PATH}?offset={readable}")
    assert (refused.status, refused.code) == (422, "undecodable_batch")
    told = {name: refused.json[name] for name in ("topic", "partition", "offset", "next_offset")}
    assert told == {"topic": "orders", "partition": 0, "offset": readable, "next_offset": 4}
    behind = await server.get(f"{PATH}?offset=4")
    assert [record["value"] for record in behind.json["records"]] == ["two"]
    message = await server.get(f"/v1/topics/orders/partitions/0/records/{readable}")
    assert (message.status, message.code) == (422, "undecodable_batch")


@pytest.mark.parametrize(("at", "readable"), [(FIRST_RECORD, 1), (SECOND_RECORD, 2)])
@served()
async def test_a_reader_may_skip_it(server: HttpServer, at: int, readable: int) -> None:
    assert await store_batches(server, ONE, undecodable_batch(at), TWO) == 200
    page = (await server.get(f"{PATH}?undecodable=skip")).json
    assert [record["offset"] for record in page["records"]] == [*range(readable), 4]
    assert page["skipped"] == [{"offset": readable, "next_offset": 4}]
    alone = await server.get(f"{PATH}?undecodable=skip&offset=-1")
    assert [record["value"] for record in alone.json["records"]] == ["two"]


@served()
async def test_a_page_with_nothing_but_skipped_records_says_so(server: HttpServer) -> None:
    assert await store_batches(server, undecodable_batch(FIRST_RECORD)) == 200
    page = await server.get(f"{PATH}?undecodable=skip")
    assert (page.status, page.json["records"], page.json["next_offset"]) == (200, [], 3)
    assert page.json["skipped"] == [{"offset": 0, "next_offset": 3}]


@served()
async def test_an_event_stream_ends_with_a_problem_or_skips(server: HttpServer) -> None:
    assert await store_batches(server, ONE, undecodable_batch(SECOND_RECORD), TWO) == 200
    async with stream(server) as failing:
        seen = await failing.rest()
        assert failing.ids == [0, 1]
        problem = msgspec.json.decode(seen.partition(b"event: problem\ndata: ")[2].partition(b"\n")[0])
        assert (problem["code"], problem["offset"], problem["next_offset"]) == ("undecodable_batch", 2, 4)
    async with stream(server, "?undecodable=skip") as skipping:
        await skipping.until(rb"two")
        assert skipping.ids == [0, 1, 4]
        assert b'event: skipped\ndata: {"offset":2,"next_offset":4}\n\n' in skipping.seen
