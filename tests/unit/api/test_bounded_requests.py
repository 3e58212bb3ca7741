"""The memory that one request may take: records are counted before they are decoded, and held once."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import random
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from api.http.json_bodies import WHOLE_BYTES_MAX
from api.resources.json_answers import PAGE_BYTES_MAX
from api.resources.json_records import BASE64_BYTES, decode_records, place_records
from api.resources.json_values import JSON_BYTES_MAX, STEP_BYTES, as_it_looks
from broker.listeners.admission import Admission
from broker.ports import Limits
from partitions.replica.topic_rules import BATCHES_MAX
from raftlog.errors import InvalidRecord, QuotaExceeded, RecordTooLarge
from raftlog.node.rpc_classes import CALLS_MAX, CallClass
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import DECOMPRESSED_BYTES_MAX, check_records
from raftlog.wire import media_types
from raftlog.wire.limits import RECORD_VALUES_MAX, VALUES_MAX
from tests.helpers.http_server import HttpServer, serve, served
from tests.helpers.profiled import opcodes_of

PATH = "/v1/topics/orders/partitions/0/records"
BATCH = {"Content-Type": media_types.BATCH}
JSON = {"Content-Type": media_types.JSON}
NDJSON = {"Content-Type": media_types.NDJSON}


def in_json(*records: str) -> bytes:
    return f'{{"records":[{",".join(records)}]}}'.encode()


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (in_json(*['{"value":1}'] * 500_000), media_types.JSON),
        (in_json(*["{}"] * 500_000), media_types.JSON),
        (b'{"value":1}\n' * 500_000, media_types.NDJSON),
        (b" \n" * 500_000 + b'{"value":1}\n' * 500_000, media_types.NDJSON),
    ],
    ids=["json", "empty objects", "lines", "blank lines"],
)
def test_records_are_counted_before_memory_is_taken_for_them(body: bytes, media_type: str) -> None:
    # requirement: N2
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge) as refused:
            list(decode_records(body, media_type, 10_000))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert refused.value.details["limit_records"] == 10_000


@pytest.mark.parametrize(
    "body",
    [
        in_json(f'{{"value":[{",".join(["{}"] * RECORD_VALUES_MAX)}]}}'),
        f'{{"records":[{",".join(["1"] * RECORD_VALUES_MAX)}]}}'.encode(),
    ],
    ids=["objects in a value", "records that are numbers"],
)
def test_records_are_counted_without_making_objects_of_their_values(body: bytes) -> None:
    tracemalloc.start()
    try:
        with contextlib.suppress(InvalidRecord):
            list(decode_records(body, media_types.JSON, 10_000))
        assert tracemalloc.get_traced_memory()[1] < 3 * len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("wrong", [b'{"value":"', b'{"value":1', b'{"', b'{"value":"x"},'])
async def test_a_body_is_let_go_with_its_refusal(wrong: bytes) -> None:
    # requirement: N2
    body = b'{"records":[' + wrong + b"0" * (4 << 20)
    async with serve() as server:
        await server.topic(partitions=1)
        await server.call("POST", "/v1/topics/orders/records", body, JSON)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(3):
                refused = await server.call("POST", "/v1/topics/orders/records", body, JSON)
                assert refused.status == 422
            assert tracemalloc.get_traced_memory()[0] < len(body)
        finally:
            tracemalloc.stop()
            gc.enable()


async def test_a_body_of_many_values_is_refused_before_it_is_decoded() -> None:
    # requirement: N2
    keys = ",".join(f'"k{number}":1' for number in range(VALUES_MAX + 1))
    offsets = ",".join("{}" for _ in range(VALUES_MAX + 2))
    async with serve() as server:
        topic = await server.call("POST", "/v1/topics", f'{{"name":"a","config":{{{keys}}}}}'.encode(), JSON)
        commit = await server.call("PUT", "/v1/groups/g/offsets", f'{{"offsets":[{offsets}]}}'.encode(), JSON)
        once = f'{{"group_offsets":{{"group":"g","offsets":[{offsets}]}}}}'.encode()
        execute = await server.call("POST", "/v1/transactions:execute", once, JSON)
        for refused in (topic, commit, execute):
            assert (refused.status, refused.code) == (413, "record_too_large")
            assert refused.json["limit_values"] == VALUES_MAX


async def test_records_of_many_values_are_refused_before_they_are_decoded() -> None:
    # requirement: N2
    record = '{"value":[' + "0," * (RECORD_VALUES_MAX + 1) + "0]}"
    records = in_json(record)
    once = b'{"records":[' + record.replace('"value"', '"topic":"orders","value"').encode() + b"]}"
    async with serve() as server:
        await server.topic(partitions=1)
        plain = await server.call("POST", "/v1/topics/orders/records", records, JSON)
        lines = await server.call("POST", "/v1/topics/orders/records", record.encode(), NDJSON)
        execute = await server.call("POST", "/v1/transactions:execute", once, JSON)
        for refused in (plain, lines, execute):
            assert (refused.status, refused.code) == (413, "record_too_large")
            assert refused.json["limit_values"] == RECORD_VALUES_MAX


def test_a_large_body_means_what_a_small_one_does() -> None:
    records = [f'{{"value":"{"x" * 1000}","key":"k{number}","tags":["a"]}}' for number in range(300)]
    body = in_json(*records)
    assert len(body) > WHOLE_BYTES_MAX
    found = list(decode_records(body, media_types.JSON, 1000))
    assert found == list(decode_records("\n".join(records).encode(), media_types.NDJSON, 1000))
    assert [record.key for record in found] == [f"k{number}" for number in range(300)]
    records[7] = '{"value":1,"colour":"red"}'
    with pytest.raises(InvalidRecord) as refused:
        list(decode_records(in_json(*records), media_types.JSON, 1000))
    assert refused.value.details["errors"] == ["/records/7/colour: this field does not exist"]
    with pytest.raises(InvalidRecord, match="colour"):
        list(decode_records(body[:-1] + b',"colour":1}', media_types.JSON, 1000))


@pytest.mark.parametrize("size_bytes", [0, 1, 2, 3, 786_431, 786_432, 786_433, 3_000_000])
def test_base64_of_any_length_is_decoded_in_parts(size_bytes: int) -> None:
    value = random.Random(size_bytes).randbytes(size_bytes)
    text = base64.b64encode(value)

    def placed(text: bytes) -> bytes | None:
        body = in_json(f'{{"encoding":"base64","value":"{text.decode()}"}}')
        records = decode_records(body, media_types.JSON, 1)
        (found,) = place_records(records, partition_count=1, only=0, trace=None)
        return found.record.value

    assert placed(text) == value
    for wrong in (text + b"!", b"=" + text, text + b"YQ==YQ==", b"YQ==" * (BASE64_BYTES // 4) + b"YWJj"):
        with pytest.raises(InvalidRecord, match="base64"):
            placed(wrong)


def test_lines_are_found_with_their_blanks_around_them() -> None:
    lines = b'\r\n  \n\t {"value":1} \r\n\n{"value":2}\n   \r'
    assert len(list(decode_records(lines, media_types.NDJSON, 2))) == 2
    for blank in (b" \n", b"\n", b"\r", b"\t \r\n"):
        with pytest.raises(InvalidRecord, match="no records"):
            list(decode_records(blank * 5_000, media_types.NDJSON, 2))


def test_blank_lines_cost_little_however_many_they_are() -> None:
    # requirement: N2
    def instructions(blanks: bytes) -> int:
        body = blanks + b'{"value":1}'
        return opcodes_of(lambda: list(decode_records(body, media_types.NDJSON, 1)))

    assert instructions(b"\n" * 1_000_000) < 100_000


def test_headers_that_take_more_than_a_record_should_are_refused_by_name() -> None:
    headers = ",".join(f'"h{number}":""' for number in range(50_000))
    with pytest.raises(InvalidRecord, match="/records/0/headers"):
        list(decode_records(in_json(f'{{"value":1,"headers":{{{headers}}}}}'), media_types.JSON, 10))
    large = '{"value":"' + "x" * (1 << 20) + '"}'
    assert len(list(decode_records(in_json(large), media_types.JSON, 10))) == 1


@pytest.mark.parametrize("kind", [CallClass.LONG_POLL, CallClass.GROUP_WAIT])
def test_the_waiting_requests_of_one_address_are_a_quarter_of_the_calls_that_may_wait(
    kind: CallClass,
) -> None:
    # requirement: C4
    limits = Limits()
    parked = Admission(limits).parked
    parked.take("10.0.0.9", limits.parked_client_max)
    assert CALLS_MAX[kind] >= 4 * parked.total
    with pytest.raises(QuotaExceeded) as refused:
        parked.take("10.0.0.9", 1)
    assert refused.value.details["retry_after_ms"] == 1_000
    parked.take("10.0.0.8", 1)
    assert CALLS_MAX[kind] >= 2 * limits.parked_max, "two peers, all of whose requests wait, fill the class"


@served(partitions=1)
async def test_a_request_with_too_many_batches_is_refused(server: HttpServer) -> None:
    batch = build_batch([Record(b"v")], codec=Codec.NONE, timestamp_ms=1)
    refused = await server.call("POST", PATH, batch * (BATCHES_MAX + 1), BATCH)
    assert (refused.status, refused.code) == (413, "record_too_large")
    assert refused.json["limit_batches"] == BATCHES_MAX
    assert (await server.call("POST", PATH, batch * BATCHES_MAX, BATCH)).status == 200


@served(partitions=1)
async def test_a_small_batch_that_becomes_very_large_is_refused(server: HttpServer) -> None:
    for value_bytes, status in ((DECOMPRESSED_BYTES_MAX, 422), (DECOMPRESSED_BYTES_MAX - 100, 200)):
        bomb = build_batch([Record(bytes(value_bytes))], codec=Codec.ZSTD, timestamp_ms=1)
        assert len(bomb) < 4096
        assert (await server.call("POST", PATH, bomb, BATCH)).status == status


@served(partitions=1)
async def test_small_batches_that_become_very_large_together_are_refused(server: HttpServer) -> None:
    bomb = build_batch([Record(bytes(15 << 20))], codec=Codec.ZSTD, timestamp_ms=1)
    refused = await server.call("POST", PATH, bomb * 5, BATCH)
    assert (refused.status, refused.code) == (413, "record_too_large")
    assert (await server.get(PATH)).status == 204
    assert (await server.call("POST", PATH, bomb * 4, BATCH)).status == 200


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        ('ab é and € with a "word" '.encode() * (STEP_BYTES // 10), "utf8"),
        (b"\xff\x00\x01\x02" * (STEP_BYTES // 2 + 1), "base64"),
        (b"[" + b"1," * (JSON_BYTES_MAX // 2) + b"1]", "utf8"),
        (b"[" + b"1," * (JSON_BYTES_MAX // 2 - 2) + b"1]", "json"),
    ],
    ids=["text", "bytes", "long JSON", "JSON"],
)
def test_a_long_value_is_shown_as_it_is(value: bytes, encoding: str) -> None:
    raw, shown_as = as_it_looks(value, 0)
    shown = msgspec.json.decode(raw)
    assert shown_as == encoding
    match encoding:
        case "utf8":
            assert shown == value.decode()
        case "base64":
            assert base64.b64decode(shown) == value
        case _:
            assert shown == json.loads(value)


@pytest.mark.parametrize("value", [bytes(2 << 20), b'"' * (2 << 20)], ids=["control", "quotes"])
@served(partitions=1)
async def test_a_value_with_many_escapes_is_shown_in_base64(server: HttpServer, value: bytes) -> None:
    batch = build_batch([Record(value), Record(value[:1000])], codec=Codec.ZSTD, timestamp_ms=1)
    assert (await server.call("POST", PATH, batch, BATCH)).status == 200
    page = await server.get(PATH)
    records = page.json["records"]
    assert isinstance(records, list)
    assert [record["encoding"] for record in records] == ["base64", "utf8"]
    assert len(page.body) < 1.4 * len(value)
    refused = await server.get(f"{PATH}?format=utf8")
    assert (refused.status, refused.code) == (422, "invalid_record")


@served(partitions=1)
async def test_what_a_small_batch_becomes_is_shown_in_pages(server: HttpServer) -> None:
    # requirement: C2
    value_bytes = 3 << 20
    bomb = build_batch([Record(b"x" * value_bytes)] * 5, codec=Codec.ZSTD, timestamp_ms=1)
    assert (await server.call("POST", PATH, bomb, BATCH)).status == 200
    at, sizes = 0, []
    while at < 5:
        page = await server.get(f"{PATH}?offset={at}")
        records = page.json["records"]
        assert isinstance(records, list)
        assert [record["offset"] for record in records] == [*range(at, at + len(records))]
        assert len(page.body) < PAGE_BYTES_MAX
        sizes.append(len(records))
        at += len(records)
        assert page.json["next_offset"] == at
    assert sizes == [2, 2, 1]


BODY_BYTES = 12 << 20


@contextmanager
def _peak_mib() -> Iterator[list[float]]:
    """Gives how much memory was taken at most, once the block has ended."""
    found: list[float] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1] / (1 << 20))
    finally:
        tracemalloc.stop()


def test_a_batch_is_checked_with_two_copies_of_its_records() -> None:
    bomb = build_batch([Record(bytes(BODY_BYTES))], codec=Codec.ZSTD, timestamp_ms=1)
    with _peak_mib() as peak:
        check_records(split_batches(bomb)[0])
    assert peak[0] < 2 * 16


async def test_a_body_is_held_once_while_it_is_inflated() -> None:
    body = b'{"records":[' + b",".join([b'{"value":1}'] * (BODY_BYTES // 12)) + b"]}"
    packed = zlib.compress(body, 9)
    sent = {"Content-Type": media_types.JSON, "Content-Encoding": "deflate"}
    async with serve() as server:
        await server.topic(partitions=1)
        with _peak_mib() as peak:
            answer = await server.call("POST", PATH, packed, sent)
        assert answer.code == "record_too_large"
        assert peak[0] < 12 + 8


async def test_records_are_held_once_when_they_wait_to_be_stored() -> None:
    value = "v" * (1000 << 10)
    async with serve() as server:
        await server.topic(partitions=1)
        body = msgspec.json.encode({"records": [{"value": value}] * 12})
        with _peak_mib() as peak:
            answer = await server.call("POST", PATH, body, {"Content-Type": media_types.JSON})
        assert answer.status == 200
        assert peak[0] < 4 * 12


LONG = 15_000_000
VALUES = {
    "text": b'"' + b"x" * LONG + b'"',
    "other alphabets": b'"' + "\u20ac".encode() * (LONG // 3) + b'"',
    "JSON": b'["' + b"x" * LONG + b'"]',
    "base64": b'"' + b"AAAA" * (LONG // 4) + b'","encoding":"base64"',
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_a_long_record_is_held_once_in_each_form(value: bytes) -> None:
    """The body, the record and its batch; decoding and encoding make one more copy at a time."""
    # requirement: N2
    body = b'{"records":[{"value":' + value + b"}]}"
    async with serve() as server:
        await server.topic(partitions=1, max_message_bytes=16 << 20)
        with _peak_mib() as peak:
            answer = await server.call("POST", PATH, body, JSON)
        assert answer.status == 200
    assert peak[0] < 5.2 * LONG / (1 << 20)  # two more for an alphabet whose text takes two bytes a character


async def test_what_follows_a_request_and_is_no_http_is_not_kept() -> None:
    # requirement: C4
    junk = b"x" * (240 << 10)
    async with serve() as server:
        await server.topic(partitions=1)
        asked = f"GET {PATH}?offset=latest HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\n\r\n".encode()
        gc.disable()  # it may come late
        tracemalloc.start()
        try:
            for _ in range(10):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)
                writer.write(asked + junk)
                with contextlib.suppress(ConnectionError):
                    while await reader.read(1000):
                        pass
                writer.close()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
    assert held < 10 * len(junk) / 2


async def asked_of_partitions(server: HttpServer, path: str, body: object, answered: set[int]) -> int:
    """Count the questions to leaders of partitions for one request."""
    gateway, asked = server.cluster.gateway, list[object]()
    with pytest.MonkeyPatch.context() as patched:
        for name in ("fetch", "offset_at"):
            ask = getattr(gateway, name)

            async def counted(*args: object, ask: Callable[..., Any] = ask, **named: object) -> object:
                asked.append(args)
                return await ask(*args, **named)

            patched.setattr(gateway, name, counted)
        assert (await server.post(path, body)).status in answered
    return len(asked)


# requirement: N2
@served()
async def test_a_partition_that_is_named_again_and_again_is_asked_once(server: HttpServer) -> None:
    await server.topic(partitions=1)
    acks = [{"topic": "orders", "partition": 0, "offset": 7}]
    poll = {
        "topics": ["orders"],
        "wait": "0s",
        "positions": [{"topic": "orders", "partition": 0, "offset": 0}],
    }
    reset = {"to": "earliest", "partitions": [{"topic": "orders", "partitions": [0]}]}
    many = {"to": "earliest", "partitions": [{"topic": "orders", "partitions": [0] * 1_000}]}
    for path, once, often in (
        ("/v1/groups/g/members/m:poll", {**poll, "ack": acks}, {**poll, "ack": acks * 1_000}),
        ("/v1/groups/h/offsets:reset", reset, many),
    ):
        expected = await asked_of_partitions(server, path, once, {200, 416})
        assert await asked_of_partitions(server, path, often, {200, 416}) == expected > 0
