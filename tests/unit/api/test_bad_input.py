"""What strangers and mistakes send: it is refused by name, and the broker goes on."""

from __future__ import annotations

import asyncio
import gzip
import logging
import threading
from typing import Literal

import msgspec
import pytest

from api.http.bodies import MEMBERS_MAX, decoded_json
from api.http.json_bodies import SEARCHED_BYTES, WHOLE_BYTES_MAX, decode_json
from broker.ports import Limits
from raftlog.errors import InvalidRequest
from raftlog.types import TopicPartition
from tests.helpers.http_server import HttpServer, serve, served

TOPIC = "/v1/topics/orders/records"
PATH = "/v1/topics/orders/partitions/0/records"
JSON = {"Content-Type": "application/json"}
HEAD = f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"records":[{"valeu":1}]}', "/records/0/valeu"),
        (b'{"records":[{}]}', "/records/0/value"),
        (b'{"records":[{"value":1}],"more":1}', "/more"),
        (b'{"records":[]}', None),
        (b'{"records":{}}', "/records"),
        (b"[]", ""),
        (b"{}", "/records"),
        (b"", ""),
        (b'{"records":[{"value":1},{"value":NaN}]}', ""),
        (b'{"records":[{"value":1},{"value":Infinity}]}', ""),
        (b'{"records":[{"value":' + b"[" * 10_000 + b"]" * 10_000 + b"}]}", ""),
        (b"[" * 10_000, ""),
        (b'{"records":[{"value":"\xff"}]}', ""),
        (b'{"records":[{"value":"\xc0\xaf"}]}', ""),
        (b'{"records":[{"value":"\\ud800"}]}', ""),
        (b'{"records":[{"value":{"a":"\xff"}}]}', ""),
        (b'{"records":[{"value":1,"key":true}]}', "/records/0/key"),
        (b'{"records":[{"value":1,"key":1.5}]}', "/records/0/key"),
        (b'{"records":[{"value":1,"partition":9223372036854775808}]}', None),
        (b'{"records":[{"value":1,"partition":-1}]}', None),
        (b'{"records":[{"value":1,"timestamp":"yesterday"}]}', None),
        (b'{"records":[{"value":1,"timestamp":"2026-01-01T00:00:00"}]}', None),
        (b'{"records":[{"value":1,"timestamp":-1}]}', None),
        (b'{"records":[{"value":1,"timestamp":9223372036854775808}]}', None),
        (b'{"records":[{"value":"?","encoding":"base64"}]}', None),
        (b'{"records":[{"value":"a","key":"?","key_encoding":"base64"}]}', None),
        (b'{"records":[{"value":{},"encoding":"utf8"}]}', None),
        (b'{"records":[{"value":"a","encoding":"hex"}]}', "/records/0/encoding"),
        (b'{"records":[{"value":1,"headers":{"a":1}}]}', "/records/0/headers/..."),
        (b'{"records":[{"value":1,"headers":{"raftlog.tag":"a"}}]}', None),
        (b'{"records":[{"value":1,"headers_raw":[["a"]]}]}', "/records/0/headers_raw/0"),
        (b'{"records":[{"value":1,"headers_raw":[["a","?"]]}]}', None),
        (b'{"records":[{"value":1,"tags":[""]}]}', None),
        (b'{"records":[{"value":1,"tags":["a,b"]}]}', None),
        (b'{"records":[{"value":1,"tags":"a"}]}', "/records/0/tags"),
    ],
    ids=lambda value: repr(value)[:60],
)
@served(partitions=1)
async def test_a_wrong_record_is_named(server: HttpServer, body: bytes, pointer: str | None) -> None:
    refused = await server.call("POST", TOPIC, body, JSON)
    assert (refused.status, refused.code) == (422, "invalid_record"), refused
    if pointer is not None:
        assert refused.json["field"] == pointer
    assert refused.json["errors"]
    assert server.cluster.gateway.log(TopicPartition("orders", 0)).end == 0


@served(partitions=1)
async def test_all_wrong_records_are_named_at_once(server: HttpServer) -> None:
    body = {"records": [{"value": 1}, {"value": "?", "encoding": "base64"}, {"value": 1, "partition": 7}]}
    errors = (await server.post(TOPIC, body)).json["errors"]
    assert isinstance(errors, list)
    assert [error.partition(":")[0] for error in errors] == ["/records/1/value", "/records/2/partition"]
    many = {"records": [{"value": 1, "partition": 7}] * 1000}
    assert len((await server.post(TOPIC, many)).body) < 5000


@pytest.mark.parametrize(
    "name",
    ["nope", "x" * 250, "%2e%2e", "..%2fx", "a%2Fb", "%00", "%d0%bErders", "orders%20", "Orders", "%ff", "%"],
)
@served(partitions=3)
async def test_a_topic_that_nobody_made_is_not_found(server: HttpServer, name: str) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/partitions/0/records"),
        ("DELETE", ""),
        ("GET", "/partitions"),
    ):
        head = f"{method} /v1/topics/{name}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = await server.raw(head.encode(), until_closed=True)
        assert answer.startswith(b"HTTP/1.1 404 "), answer
        assert b"application/problem+json" in answer


@pytest.mark.parametrize(
    "path", ["/v1/topics/../x", "/v1/topics/", "/v1//topics", "/v1/topics/orders/", "//", "/v2"]
)
@served(partitions=3)
async def test_a_path_that_is_not_there_is_a_problem_too(server: HttpServer, path: str) -> None:
    answer = await server.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 "), answer
    assert b'"code":"' in answer


@served()
async def test_a_percent_encoded_name_is_the_same_topic(server: HttpServer) -> None:
    await server.topic("a.b")
    answer = await server.raw(b"GET /v1/topics/%61%2Eb HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("partition", ["3", "-1", "x", "1.0", "99999999999999999999", "%d9%a1", "0x1", "+1"])
@served(partitions=3)
async def test_a_partition_that_is_not_there_is_not_found(server: HttpServer, partition: str) -> None:
    got = await server.get(f"/v1/topics/orders/partitions/{partition}/records")
    assert (got.status, got.code) == (404, "partition_not_found")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("ofset=1", "ofset"),
        ("offset=1&offset=2", "offset"),
        ("offset=", "offset"),
        ("offset=1.5", "offset"),
        ("offset=9223372036854775808", "offset"),
        ("offset=-0", "offset"),
        ("offset=newest", "offset"),
        ("offset=timestamp:2026-13-01T00:00:00Z", "offset"),
        ("offset=timestamp:2026-01-01", "offset"),
        ("offset=timestamp:1900-01-01T00:00:00Z", "offset"),
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=1e3", "limit"),
        ("max_bytes=0", "max_bytes"),
        ("max_bytes=68719476736", "max_bytes"),
        ("min_bytes=x", "min_bytes"),
        ("wait=soon", "wait"),
        ("wait=-1", "wait"),
        ("wait=1w", "wait"),
        ("format=xml", "format"),
        ("route=there", "route"),
    ],
)
@served(partitions=1)
async def test_a_wrong_query_parameter_is_named(server: HttpServer, query: str, field: str) -> None:
    refused = await server.get(f"{PATH}?{query}")
    assert (refused.status, refused.code, refused.json["field"]) == (422, "invalid_request", field)


@pytest.mark.parametrize("number", ["9223372036854775808.1", "5.32768", "9999999999999999999.99999"])
@served(partitions=1)
async def test_a_transaction_with_a_number_that_none_has_is_named(server: HttpServer, number: str) -> None:
    headers = JSON | {"Raftlog-Transaction": f"copy@{number}"}
    for path in (TOPIC, PATH):
        refused = await server.call("POST", path, b'{"records":[{"value":1}]}', headers)
        assert (refused.status, refused.code) == (422, "invalid_request"), refused
        assert refused.json["field"] == "Raftlog-Transaction"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("acks=most", "acks"),
        ("acks=", "acks"),
        ("timeout=x", "timeout"),
        ("ack=1", "ack"),
        ("delay=soon", "delay"),
    ],
)
@served(partitions=1)
async def test_a_wrong_produce_parameter_is_named(server: HttpServer, query: str, field: str) -> None:
    refused = await server.post(f"{TOPIC}?{query}", {"records": [{"value": 1}]})
    assert (refused.status, refused.json["field"]) == (422, field)


@served(partitions=1)
async def test_media_types_are_negotiated_or_refused_with_a_list(server: HttpServer) -> None:
    wrong = await server.call("POST", TOPIC, b"<x/>", {"Content-Type": "text/xml"})
    assert (wrong.status, wrong.code) == (415, "unsupported_media_type")
    assert "application/json" in str(wrong.json["supported"])
    charset = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert (await server.call("POST", TOPIC, b'{"records":[{"value":1}]}', charset)).status == 200
    encoded = await server.call("POST", TOPIC, b"x", JSON | {"Content-Encoding": "br"})
    assert (encoded.status, encoded.code) == (415, "unsupported_media_type")
    refused = await server.get(PATH, Accept="image/png")
    assert (refused.status, refused.code) == (406, "not_acceptable")
    assert "text/event-stream" in str(refused.json["supported"])
    for accept in ("*/*", "application/*", "image/png, */*;q=0.1", "application/json;q=0.5, image/png"):
        assert (await server.get(PATH, Accept=accept)).headers["content-type"] == "application/json"
    assert (await server.get("/v1/topics", Accept="application/json;q=0")).status == 406


@served(partitions=1)
async def test_a_body_announced_as_too_large_is_refused_before_it_is_read(server: HttpServer) -> None:
    head = HEAD + f"Content-Length: {10 << 30}\r\n"
    answer = await server.raw(f"{head}\r\nxxxx".encode(), until_closed=True)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"record_too_large"' in answer
    assert b"Connection: close" in answer
    expecting = await server.raw(f"{head}Expect: 100-continue\r\n\r\n".encode())
    assert expecting.startswith(b"HTTP/1.1 413 ")


@served(partitions=1)
async def test_a_body_that_is_expected_is_asked_for(server: HttpServer) -> None:
    head = HEAD + "Content-Length: 25\r\n"
    answer = await server.raw(f"{head}Expect: 100-continue\r\n\r\n".encode())
    assert answer == b"HTTP/1.1 100 Continue\r\n\r\n"


@served(Limits(body_bytes_max=16_000), partitions=1)
async def test_a_body_that_grows_too_large_is_refused_while_it_is_read(server: HttpServer) -> None:
    head = f"POST {TOPIC} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    answer = await server.raw(
        f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunk * 10, until_closed=True
    )
    assert answer.startswith(b"HTTP/1.1 413 ")
    bomb = gzip.compress(b"x" * 10_000_000)
    assert len(bomb) < 16_000
    packed = {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    assert (await server.call("POST", TOPIC, bomb, packed)).code == "record_too_large"


@served(partitions=1)
async def test_a_compressed_body_is_undone(server: HttpServer) -> None:
    packed = JSON | {"Content-Encoding": "gzip"}
    body = gzip.compress(b'{"records":[{"value":"zipped"}]}')
    assert (await server.call("POST", TOPIC, body, packed)).status == 200
    broken = await server.call("POST", TOPIC, b"no gzip at all", packed)
    assert (broken.status, broken.json["field"]) == (422, "body")
    short = await server.call("POST", TOPIC, body[:-4], packed)
    assert (short.status, short.json["field"]) == (422, "body")
    assert "truncated" in str(short.json["detail"])


@served(partitions=1)
async def test_a_body_may_have_several_members_and_a_byte_order_mark(server: HttpServer) -> None:
    packed = JSON | {"Content-Encoding": "gzip"}
    body = b'{"records":[{"value":"zipped"}]}'
    halves = gzip.compress(body[:9]) + gzip.compress(b"") + gzip.compress(body[9:])
    assert (await server.call("POST", TOPIC, halves, packed)).status == 200
    assert (await server.call("POST", TOPIC, gzip.compress(b"") + halves, packed)).status == 200
    assert (await server.call("POST", TOPIC, b"\xef\xbb\xbf" + body, JSON)).status == 200
    followed = await server.call("POST", TOPIC, halves + b"no member", packed)
    assert "followed by other bytes" in str(followed.json["detail"])
    cut = await server.call("POST", TOPIC, halves[:-1], packed)
    assert "truncated" in str(cut.json["detail"])
    many = await server.call("POST", TOPIC, gzip.compress(b"") * (MEMBERS_MAX + 1), packed)
    assert (many.status, many.json["field"]) == (422, "body")


@served(partitions=1)
async def test_half_a_surrogate_pair_is_named(server: HttpServer) -> None:
    reply = await server.call("POST", TOPIC, b'{"records":[{"value":"\\ud83d"}]}', JSON)
    assert reply.status == 422
    assert "surrogate" in str(reply.json["detail"])


@pytest.mark.parametrize("before", range(SEARCHED_BYTES - 13, SEARCHED_BYTES + 2))
def test_half_a_surrogate_pair_is_named_wherever_it_stands(before: int) -> None:
    text = b'"' + b"x" * (before - 1)
    whole, half, escaped = b"\\ud83d\\ude00", b"\\ud83d", b"\\\\ud83d"
    assert decode_json(text + whole + escaped + b'"', str)
    for wrong, what in ((half, "surrogate"), (half + whole, "surrogate"), (whole + escaped, "truncated")):
        with pytest.raises(InvalidRequest, match=what):
            decode_json(text + wrong, str)


# requirement: N2
def test_an_error_quotes_a_part_of_a_huge_body() -> None:
    class Empty(msgspec.Struct, forbid_unknown_fields=True):
        pass

    with pytest.raises(InvalidRequest, match=r"^/x{299}: this field does not exist$"):
        decode_json(b'{"' + b"x" * 1_000_000 + b'":1}', Empty)
    with pytest.raises(InvalidRequest, match=r"^/\.\.\.: Invalid enum value 'x{1,300}$"):
        decode_json(b'{"a":"' + b"x" * 1_000_000 + b'"}', dict[Literal["a"], Literal["b"]])


# requirement: N2
def test_a_large_body_is_decoded_beside_the_event_loop() -> None:
    class Seen(msgspec.Struct):
        text: str

        def __post_init__(self) -> None:
            threads.append(threading.current_thread())

    threads: list[threading.Thread] = []
    for size in (10, WHOLE_BYTES_MAX):
        found = asyncio.run(decoded_json(b'{"text":"' + b"x" * size + b'"}', Seen))
        assert len(found.text) == size
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threads[0]


@served(partitions=1)
async def test_an_empty_body_is_called_empty(server: HttpServer) -> None:
    for body in b"", b" \n", b"\t" * (2 * SEARCHED_BYTES):
        reply = await server.call("POST", TOPIC, body, JSON)
        assert (reply.status, reply.json["detail"]) == (422, "the body is not JSON in UTF-8: it is empty")


@served(Limits(body_timeout_s=0.1), partitions=1)
async def test_a_slow_body_ends_in_time(server: HttpServer) -> None:
    head = HEAD + "Content-Length: 100\r\n\r\n"
    answer = await server.raw(head.encode() + b"{", until_closed=True)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in answer
    assert b"raftlog_http_body_bytes 0.0" in (await server.get("/metrics")).body


@served(Limits(body_grace_s=0.1, body_rate_min=1000), partitions=1)
async def test_a_body_that_trickles_ends_before_its_time(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write((HEAD + "Content-Length: 100\r\n\r\n").encode())
    async with asyncio.timeout(10):
        answered = asyncio.ensure_future(reader.readline())
        while not answered.done():
            writer.write(b" ")
            await asyncio.wait([answered], timeout=0.01)
    assert answered.result().startswith(b"HTTP/1.1 408 ")
    writer.close()


@served(Limits(request_bytes_in_flight_max=2500, request_bytes_in_flight_client_max=2000), partitions=1)
async def test_announced_bodies_that_do_not_come_take_no_room(server: HttpServer) -> None:
    # requirement: N2
    writers = []
    for _ in range(8):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write((HEAD + "Content-Length: 1000\r\n\r\n{").encode())
        writers.append(writer)
    async with asyncio.timeout(20):
        while b"raftlog_http_body_bytes 8.0" not in (await server.get("/metrics")).body:
            await asyncio.sleep(0.01)
    assert (await server.post(TOPIC, {"records": [{"value": "x" * 1000}]})).status == 200
    for writer in writers:
        writer.close()


async def test_a_client_that_disconnects_within_a_body_is_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with serve() as server:
            await server.topic(partitions=1)
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            head = HEAD + "Content-Length: 100\r\n\r\n"
            writer.write(head.encode() + b"{")
            await writer.drain()
            async with asyncio.timeout(20):
                while b"raftlog_http_body_bytes 1.0" not in (await server.get("/metrics")).body:
                    await asyncio.sleep(0.01)
                writer.close()
                while b"raftlog_http_body_bytes 0.0" not in (await server.get("/metrics")).body:
                    await asyncio.sleep(0.01)
    assert not caplog.records


async def test_an_internal_error_shows_no_traceback_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with serve() as server:
            await server.topic(partitions=1)
            server.cluster.gateway.faults[TopicPartition("orders", 0)] = ValueError("a secret of the inside")
            failed = await server.get(PATH)
            assert (failed.status, failed.code) == (500, "internal_error")
            assert b"secret" not in failed.body
            assert b"Traceback" not in failed.body
            assert failed.headers["raftlog-request-id"] in caplog.text
    assert "a secret of the inside" in caplog.text


# requirement: N2
async def test_a_lack_of_memory_is_no_fault_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of which nothing was done may come again; of a write that had begun nobody knows."""
    async with serve() as server:
        await server.topic(partitions=1)
        server.cluster.gateway.faults[TopicPartition("orders", 0)] = MemoryError()
        read = await server.get(PATH)
        assert (read.status, read.code) == (503, "overloaded")
        written = await server.post(TOPIC, {"records": [{"value": 1}]})
        assert (written.status, written.code) == (504, "commit_unknown")
        assert "does not know" in str(written.json["detail"])
        server.cluster.gateway.faults.clear()
        for place, size in (
            ("api.http.json_bodies._check_text", 10),  # on the event loop
            ("api.http.json_bodies._check_text", 1 << 20),  # on a thread
            ("api.resources.json_records.build_batches", 1 << 20),
        ):
            with monkeypatch.context() as patched:
                patched.setattr(place, lambda *_, **__: lacks_memory())
                refused = await server.post(TOPIC, {"records": [{"value": "x" * size}]})
            assert (refused.status, refused.code) == (503, "overloaded")
            assert int(refused.headers["retry-after"]) > 0
        assert (await server.post(TOPIC, {"records": [{"value": 1}]})).status == 200


def lacks_memory() -> None:
    raise MemoryError


@served(Limits(records_per_request_max=10), partitions=1)
async def test_too_many_records_in_one_request_are_refused(server: HttpServer) -> None:
    refused = await server.post(TOPIC, {"records": [{"value": 1}] * 11})
    assert (refused.status, refused.code, refused.json["limit_records"]) == (413, "record_too_large", 10)
    lines = await server.post(TOPIC, b'{"value":1}\n' * 11, Content_Type="application/x-ndjson")
    assert lines.status == 413
