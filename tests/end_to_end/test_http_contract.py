"""The HTTP contract, from outside: what a client that has read the documentation may count on.

Every broker is as good as another, so each request goes to the next of the three.
"""

from __future__ import annotations

import threading
import time
from itertools import count, cycle

import pytest

from chaos.cluster import Cluster
from raftlog.records.keys import partition_for_key
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import (
    RETRYABLE,
    Answer,
    call,
    create_topic,
    delete_topic,
    eventually,
    produce_surely,
    read_all,
    records_path,
    settled,
)

pytestmark = pytest.mark.e2e


class Api:
    """Calls that go round the brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.urls = cluster.urls
        self._turn = cycle(cluster.urls)

    def __call__(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Header names with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return settled(next(self._turn), method, path, body, named)

    def topic(self, name: str, partitions: int = 1) -> str:
        """A new topic; its name."""
        create_topic(next(self._turn), name, partitions)
        return name

    def store(self, topic: str, *values: str) -> None:
        """Values into partition 0."""
        produce_surely(self.urls, topic, values)


@pytest.fixture
def api(unbroken: Cluster) -> Api:
    """The contract's other side."""
    return Api(unbroken)


def test_records_go_where_their_keys_send_them_and_come_back_whole(api: Api) -> None:
    # requirement: K1, K4, M1, T5, T7, P4
    records = [
        {"key": f"user-{n % 11}", "value": {"n": n}, "headers": {"source": "web"}, "tags": ["new"]}
        for n in range(60)
    ]
    numbers = count()

    def stored() -> tuple[str, Answer] | None:
        """Each attempt has a topic of its own: one that is refused may have stored some."""
        topic = api.topic(f"keyed-{next(numbers)}", 4)
        answer = call(api.urls[0], "POST", f"/v1/topics/{topic}/records", {"records": records})
        return None if answer.status in (207, *RETRYABLE) else (topic, answer)

    topic, sent = eventually(stored, what="records that are stored")
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
                assert all(isinstance(row[name], int) for name in ("timestamp", "size_bytes", "crc"))


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
            woken.append(settled(url, "GET", wait_path))

        thread = threading.Thread(target=wait, args=(url, f"{path}?offset={number}&wait=50s", woken))
        thread.start()
        eventually(
            lambda broker=number + 1: unbroken.metric("raftlog_http_parked_requests", broker=broker),
            what="it waits, since nothing is there",
        )
        api.store(topic, f"wake {number}")
        thread.join(LIMIT_S)
        assert [row["value"] for row in woken[0].rows()] == [f"wake {number}"]


def test_a_producer_that_repeats_itself_writes_once(api: Api) -> None:
    # requirement: D3
    topic = api.topic("idempotent")
    made = api("POST", "/v1/producers")
    names = ("Raftlog_Producer_Id", "Raftlog_Producer_Epoch")
    identity = {names[0]: str(made.number("producer_id")), names[1]: str(made.number("producer_epoch"))}
    body = {"records": [{"value": "a"}, {"value": "b"}]}
    offsets = [
        [
            row["offset"]
            for row in api(
                "POST", records_path(topic), body, Raftlog_Producer_Sequence="0", **identity
            ).rows()
        ]
        for _ in range(4)
    ]
    assert offsets == [[0, 1]] * 4
    gap = api("POST", records_path(topic), body, Raftlog_Producer_Sequence="5", **identity)
    assert (gap.status, gap.code, gap.number("expected_sequence")) == (409, "out_of_order_sequence", 2)
    assert [value for _, value in read_all(api.urls[0], topic)] == ["a", "b"]


def test_the_surroundings_are_there(api: Api) -> None:
    # requirement: ST4, ST5
    for _ in api.urls:
        for path in ("/healthz/live", "/healthz/ready", "/healthz/startup", "/metrics", "/version", "/docs"):
            assert api("GET", path).status == 200, path
        document = api("GET", "/openapi.json").json
        assert str(document["openapi"]).startswith("3.1")
        paths = document["paths"]
        assert isinstance(paths, dict)
        assert {"/v1/topics", "/v1/topics/{topic}/records"} <= paths.keys()
    for url in api.urls:
        eventually(lambda url=url: knows_all(url), what="a broker that knows all brokers and the controller")


def knows_all(url: str) -> bool:
    """Whether a broker shows three brokers that are alive, and one of them as the controller."""
    brokers = settled(url, "GET", "/v1/brokers").rows("items")
    cluster = settled(url, "GET", "/v1/cluster").json
    alive = [(broker["broker_id"], broker["alive"]) for broker in brokers]
    return (
        alive == [(1, True), (2, True), (3, True)]
        and cluster["brokers"] == 3
        and cluster["controller"] in (1, 2, 3)
    )


def test_a_deleted_topic_is_gone_everywhere_and_its_name_is_free(api: Api) -> None:
    topic = api.topic("again", 2)
    api.store(topic, "old")
    first = api("GET", f"/v1/topics/{topic}").json["topic_id"]
    delete_topic(api.urls[0], topic)
    for url in api.urls:
        eventually(
            lambda url=url: call(url, "GET", f"/v1/topics/{topic}").status == 404,
            what="it is gone everywhere",
        )
    api.topic(topic, 1)
    assert api("GET", f"/v1/topics/{topic}").json["topic_id"] != first
    for url in api.urls:
        assert settled(url, "GET", f"/v1/topics/{topic}").number("partitions") == 1
        assert read_all(url, topic) == []
