"""The HTTP contract, from outside: what a client that has read the documentation may count on.

Every broker is as good as another, so each request goes to the next of the three.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from itertools import cycle
from urllib.parse import urlsplit

import pytest

from chaos.cluster import Cluster
from raftlog.records.keys import partition_for_key
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import (
    Answer,
    call,
    connect,
    create_topic,
    eventually,
    partitions_of,
    read_all,
    records_path,
)

pytestmark = pytest.mark.e2e

BATCH = "application/vnd.raftlog.batch.v1"


class Api:
    """Calls that go round the brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.urls = cluster.urls
        self._turn = cycle(cluster.urls)

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Header names with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return call(next(self._turn), method, path, body, named)

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic; its name."""
        create_topic(next(self._turn), name, partitions)
        return name

    def store(self, topic: str, *values: object, query: str = "") -> Answer:
        """Values into partition 0."""
        body = {"records": [{"value": value} for value in values]}
        answer = self("POST", records_path(topic) + query, body)
        assert answer.status in (200, 202), answer
        return answer


@pytest.fixture
def api(unbroken: Cluster) -> Api:
    """The contract's other side."""
    return Api(unbroken)


def test_a_topic_is_created_once(api: Api) -> None:
    # requirement: T1
    wanted = {"name": "once", "partitions": 3, "replication_factor": 3, "config": {"retention.ms": 60_000}}
    made = api("POST", "/v1/topics", wanted)
    assert (made.status, made.headers["location"]) == (201, "/v1/topics/once")
    assert {"name", "topic_id", "partitions", "replication_factor", "config"} <= made.json.keys()
    assert made.json["config"]["retention.ms"] == 60_000  # type: ignore[index]
    again = api("POST", "/v1/topics", {**wanted, "partitions": 5})
    assert (again.status, again.code) == (409, "topic_exists")
    for _ in range(3):
        assert api("GET", "/v1/topics/once").number("partitions") == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "wrong", "replication_factor": 2},
        {"name": "wrong", "partitons": 1},
        {"name": "wrong", "partitions": 0},
        {"name": "../wrong"},
        {"name": "wrong", "config": {"retention.msec": 1}},
        {},
    ],
)
def test_a_topic_that_cannot_be_is_refused_by_field(api: Api, wrong: dict[str, object]) -> None:
    refused = api("POST", "/v1/topics", wrong)
    assert refused.status == 422, refused
    assert refused.json["retryable"] is False
    assert refused.json["detail"]
    assert api("GET", "/v1/topics/wrong").status == 404


def test_records_go_where_their_keys_send_them_and_come_back_whole(api: Api) -> None:
    # requirement: K1, K4, M1, T5, T7, P4
    topic = api.topic("keyed", 4)
    records = [
        {"key": f"user-{n % 11}", "value": {"n": n}, "headers": {"source": "web"}, "tags": ["new"]}
        for n in range(60)
    ]
    sent = api("POST", f"/v1/topics/{topic}/records", {"records": records})
    assert sent.status == 200, sent
    wanted = [partition_for_key(str(record["key"]).encode(), 4) for record in records]
    assert [receipt["partition"] for receipt in sent.rows()] == wanted
    durability = sent.json["durability"]
    assert isinstance(durability, dict)
    assert (durability["acks"], durability["committed"], durability["fsynced"]) == ("quorum", True, True)
    for partition in range(4):
        expected = [record["value"] for record, at in zip(records, wanted, strict=True) if at == partition]
        for _ in range(3):  # at every broker, and as often as one likes
            rows = api("GET", records_path(topic, partition) + "?offset=0").rows()
            assert [row["value"] for row in rows] == expected
            assert [row["offset"] for row in rows] == list(range(len(expected)))
            for row in rows:
                assert (row["headers"], row["tags"]) == ({"source": "web"}, ["new"])
                assert row["encoding"] == "json"
                assert all(isinstance(row[name], int) for name in ("timestamp", "size", "crc"))


def test_positions_by_name_number_and_from_the_end(api: Api) -> None:
    # requirement: C1, L6
    topic = api.topic("positions")
    api.store(topic, *"abcde")
    offsets = f"/v1/topics/{topic}/partitions/0/offsets"
    assert api("GET", f"{offsets}?at=earliest").number("offset") == 0
    assert api("GET", f"{offsets}?at=latest").number("offset") == 5
    path = records_path(topic)
    asked = {
        "offset=-1": "e",
        "offset=-2": "de",
        "offset=earliest&limit=2": "ab",
        "offset=3": "de",
        "": "abcde",
    }
    for query, values in asked.items():
        assert "".join(str(row["value"]) for row in api("GET", f"{path}?{query}").rows()) == values, query
    limited = api("GET", f"{path}?offset=1&limit=2")
    assert (limited.number("next_offset"), limited.number("high_watermark")) == (3, 5)
    assert limited.json["up_to_date"] is False
    end = api("GET", f"{path}?offset=latest")
    assert (end.status, end.headers["raftlog-next-offset"]) == (204, "5")
    above = api("GET", f"{path}?offset=6")
    assert (above.status, above.code) == (416, "offset_out_of_range")
    assert (above.number("start"), above.number("end")) == (0, 5)


def test_a_long_poll_ends_with_its_time_or_with_a_record(api: Api, unbroken: Cluster) -> None:
    # requirement: C3
    topic = api.topic("waiting")
    path = records_path(topic)
    began = time.monotonic()
    empty = api("GET", f"{path}?offset=0&wait=700ms")
    took_s = time.monotonic() - began
    assert (empty.status, empty.headers["raftlog-next-offset"]) == (204, "0")
    assert took_s > 0.65
    for number, url in enumerate(api.urls):
        woken: list[Answer] = []

        def wait(url: str, wait_path: str, woken: list[Answer]) -> None:
            woken.append(call(url, "GET", wait_path))

        thread = threading.Thread(target=wait, args=(url, f"{path}?offset={number}&wait=50s", woken))
        thread.start()
        eventually(
            lambda broker=number + 1: unbroken.metric("raftlog_http_parked_requests", broker=broker),
            what="it waits, since nothing is there",
        )
        api.store(topic, f"wake {number}")
        thread.join(LIMIT_S)
        assert [row["value"] for row in woken[0].rows()] == [f"wake {number}"]


def test_acks_say_what_was_waited_for(api: Api) -> None:
    # requirement: RP5, RP6, RP7, RP8
    topic = api.topic("acks")
    nothing = api.store(topic, "zero", query="?acks=0")
    assert (nothing.status, nothing.json) == (202, {"accepted": 1})
    for acks, replicas in (("every", 3), ("3", 3), ("quorum", 2), ("all", 2), ("-1", 2)):
        durability = api.store(topic, acks, query=f"?acks={acks}").json["durability"]
        assert isinstance(durability, dict)
        assert durability["committed"] is True
        assert durability["replicas"] >= replicas, (acks, durability)
    one = api.store(topic, "one", query="?acks=1").json["durability"]
    assert isinstance(one, dict)
    assert one["fsynced"] is True
    eventually(lambda: len(read_all(api.urls[0], topic)) == 7, what="acks=1 is committed a little later")
    for acks in ("4", "some", ""):
        assert api("POST", records_path(topic) + f"?acks={acks}", {"records": [{"value": 1}]}).status == 422


def test_bytes_come_back_as_they_were_sent(api: Api) -> None:
    # requirement: T9, M3, L8
    topic, raw = api.topic("bytes"), bytes(range(256))
    path = records_path(topic)
    sent = api(
        "POST", path, raw, Content_Type="application/octet-stream", Raftlog_Key="k", Raftlog_Header_Source="x"
    )
    assert sent.status == 200, sent
    row = api("GET", path).rows()[0]
    assert (row["key"], row["headers"], row["encoding"]) == ("k", {"source": "x"}, "base64")
    assert base64.b64decode(str(row["value"])) == raw
    binary = api("GET", path, Accept=BATCH)
    assert binary.headers["raftlog-next-offset"] == "1"
    batch = bytearray(binary.body)
    assert batch[16] == 2  # the format's version
    again = api("POST", path, bytes(batch), Content_Type=BATCH)
    assert (again.status, again.number("base_offset"), again.number("record_count")) == (200, 1, 1)
    twice = api("GET", path, Accept=BATCH).body
    first, second = twice[: len(batch)], twice[len(batch) :]
    assert first[61:] == second[61:], "the records were encoded anew"
    batch[-1] ^= 1
    flipped = api("POST", path, bytes(batch), Content_Type=BATCH)
    assert (flipped.status, flipped.code) == (422, "corrupt_batch")
    assert len(read_all(api.urls[0], topic)) == 2


def test_a_producer_that_repeats_itself_writes_once(api: Api) -> None:
    # requirement: D3
    topic = api.topic("idempotent")
    made = api("POST", "/v1/producers")
    names = ("Producer_Id", "Producer_Epoch")
    identity = {names[0]: str(made.number("producer_id")), names[1]: str(made.number("epoch"))}
    body = {"records": [{"value": "a"}, {"value": "b"}]}
    offsets = [
        [row["offset"] for row in api("POST", records_path(topic), body, Producer_Seq="0", **identity).rows()]
        for _ in range(4)
    ]
    assert offsets == [[0, 1]] * 4
    gap = api("POST", records_path(topic), body, Producer_Seq="5", **identity)
    assert (gap.status, gap.code, gap.number("expected_seq")) == (409, "sequence_gap", 2)
    assert [value for _, value in read_all(api.urls[0], topic)] == ["a", "b"]


def test_events_are_followed_and_resumed(api: Api) -> None:
    topic = api.topic("events")
    api.store(topic, *"abc")
    for url in api.urls:
        with connect(url) as connection:
            connection.sendall(
                f"GET {records_path(topic)} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
                "Accept: text/event-stream\r\nLast-Event-ID: 0\r\n\r\n".encode()
            )
            seen = b""
            while len(re.findall(rb"id: ?\d+\n", seen)) < 2 or seen.count(b"event: record\n") < 2:
                seen += connection.recv(65536)
            assert b"text/event-stream" in seen
            assert re.findall(rb"id: ?(\d+)", seen) == [b"1", b"2"]
            assert seen.count(b"event: record") == 2


def test_every_problem_has_its_code_and_says_whether_a_retry_helps(api: Api) -> None:
    topic = api.topic("problems")
    path = records_path(topic)
    big = {"records": [{"value": "x" * 2_000_000}]}
    found = {
        ("topic_not_found", 404): api("GET", "/v1/topics/absent"),
        ("partition_not_found", 404): api("GET", records_path(topic, 9)),
        ("invalid_record", 422): api("POST", path, {"records": [{"valeu": 1}]}),
        ("unsupported_media_type", 415): api("POST", path, b"<x/>", Content_Type="text/xml"),
        ("record_too_large", 413): api("POST", path, big),
        ("invalid_request", 422): api("GET", f"{path}?offest=1"),
    }
    for (code, status), answer in found.items():
        assert (answer.code, answer.status) == (code, status), answer
        assert answer.json["retryable"] is False
        assert answer.json["detail"]
        assert answer.json["request_id"] == answer.headers["raftlog-request-id"]
    assert read_all(api.urls[0], topic) == []


def test_the_surroundings_are_there(api: Api) -> None:
    # requirement: ST4, ST5
    for _ in api.urls:
        for path in ("/healthz/live", "/healthz/ready", "/healthz/startup", "/metrics", "/version", "/docs"):
            assert api("GET", path).status == 200, path
        brokers = api("GET", "/v1/brokers").rows("items")
        assert [(broker["broker_id"], broker["alive"]) for broker in brokers] == [
            (1, True),
            (2, True),
            (3, True),
        ]
        cluster = api("GET", "/v1/cluster")
        assert cluster.number("controller") in (1, 2, 3)
        assert cluster.number("brokers") == 3
        document = api("GET", "/openapi.json").json
        assert str(document["openapi"]).startswith("3.1")
        paths = document["paths"]
        assert isinstance(paths, dict)
        assert {"/v1/topics", "/v1/topics/{topic}/records"} <= paths.keys()


def test_a_deleted_topic_is_gone_everywhere_and_its_name_is_free(api: Api) -> None:
    topic = api.topic("again", 2)
    api.store(topic, "old")
    first = api("GET", f"/v1/topics/{topic}").json["topic_id"]
    assert api("DELETE", f"/v1/topics/{topic}").status == 200
    for _ in api.urls:
        eventually(lambda: api("GET", f"/v1/topics/{topic}").status == 404, what="it is gone")
    api.topic(topic, 1)
    assert api("GET", f"/v1/topics/{topic}").json["topic_id"] != first
    for url in api.urls:
        assert len(partitions_of(url, topic)) == 1
        assert read_all(url, topic) == []
