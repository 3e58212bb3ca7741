"""Whole transactions in one request, and idempotency keys, on real brokers that are killed meanwhile."""

from __future__ import annotations

import json
from itertools import count
from urllib.parse import urlsplit

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import (
    Answer,
    call,
    connect,
    create_topic,
    eventually,
    partitions_of,
    read_all,
    settled,
)

pytestmark = pytest.mark.e2e

EXECUTE = "/v1/transactions:execute"
TOPICS = ("clean", "audit")
REPLAYED = "idempotency-replayed"


def body_of(number: int) -> dict[str, object]:
    """One record in each topic."""
    return {"records": [{"topic": topic, "value": number} for topic in TOPICS]}


def executed(urls: list[str], body: object, key: str, *, is_new: bool = False) -> Answer:
    """The answer, after as many attempts at one broker after the other as it takes.

    The answer to the first attempt with a new key is no repetition.
    """
    turns = count()

    def answered() -> Answer | None:
        turn = next(turns)
        answer = call(urls[turn % len(urls)], "POST", f"{EXECUTE}?timeout=3s", body, {"Idempotency-Key": key})
        assert turn or not is_new or REPLAYED not in answer.headers
        return None if answer.json.get("retryable") else answer

    answer = eventually(answered, what=f"an answer to {key}")
    assert answer.status == 200, answer
    return answer


def visible(url: str, topic: str) -> list[int]:
    """The values of all partitions, in order of their offsets."""
    partitions = len(partitions_of(url, topic))
    return [int(str(value)) for number in range(partitions) for _, value in read_all(url, topic, number)]


def sent_only(url: str, body: object, key: str) -> None:
    """A request whose answer nobody reads."""
    data, where = json.dumps(body).encode(), urlsplit(url)
    head = (
        f"POST {EXECUTE}?timeout=3s HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with connect(url) as connection:
        connection.sendall(head.encode() + data)


# requirement: D3
def test_one_key_is_carried_out_once_while_brokers_are_killed(cluster: Cluster) -> None:
    """Each broker is killed behind a first answer, and every request is repeated at all others."""
    for topic in TOPICS:
        create_topic(cluster.urls[0], topic, 1)
    for victim in (1, 2, 3):
        first = executed([cluster.url(victim)], body_of(victim), f"key-{victim}", is_new=True)
        cluster.kill(victim)
        others = [cluster.url(broker) for broker in cluster.running]
        for urls in (others, others[::-1]):
            again = executed(urls, body_of(victim), f"key-{victim}")
            assert (again.body, again.headers[REPLAYED]) == (first.body, "true")
        cluster.start(victim)
    for url in cluster.urls:
        assert [visible(url, topic) for topic in TOPICS] == [[1, 2, 3], [1, 2, 3]]


# requirement: D3
def test_a_lost_answer_is_repeated_at_another_broker(cluster: Cluster) -> None:
    """The broker that has the request is killed, at once or a little later; or its client goes away."""
    for topic in TOPICS:
        create_topic(cluster.urls[0], topic, 1)
    executed(cluster.urls, body_of(0), "first")  # creates the topic of transactions
    for number in range(1, 7):
        asked = 1 + number % 3
        others = [cluster.url(broker) for broker in cluster.running if broker != asked]
        sent_only(cluster.url(asked), body_of(number), f"key-{number}")
        if number > 3:
            cluster.kill(asked)
        done = executed(others, body_of(number), f"key-{number}")
        assert executed(others, body_of(number), f"key-{number}").body == done.body
        if number > 3:
            cluster.start(asked)
    for url in cluster.urls:
        assert [visible(url, topic) for topic in TOPICS] == [[*range(7)]] * 2


# requirement: D3
def test_input_is_processed_once_by_one_request_for_each_step(cluster: Cluster) -> None:
    """A member of a group consumes, transforms and produces, while each broker is killed once."""
    urls, inputs = cluster.urls, list(range(24))
    for topic in ("raw", *TOPICS):
        create_topic(urls[0], topic, 1)
    executed(urls, {"records": [{"topic": "raw", "value": number} for number in inputs]}, "inputs")
    member = {"topics": ["raw"], "member_id": "m-1", "session_timeout": "30m"}
    generation = settled(urls[0], "POST", "/v1/groups/enrich/members", member).number("generation")
    plan = {"generation": generation, "assignments": "auto"}
    assert settled(urls[0], "POST", "/v1/groups/enrich/members/m-1:sync", plan).status == 200
    for begin in range(0, len(inputs), 2):
        ends_at = begin + 2
        records = [{"topic": t, "value": each} for each in inputs[begin:ends_at] for t in TOPICS]
        offsets = [{"topic": "raw", "partition": 0, "offset": ends_at}]
        of_group = {"group": "enrich", "member_id": "m-1", "generation": generation, "offsets": offsets}
        victim = 1 + begin // 8 if begin % 8 == 4 else None
        if victim is not None:
            sent_only(cluster.url(victim), {"records": records, "group_offsets": of_group}, f"{begin}")
            cluster.kill(victim)
        alive = [cluster.url(broker) for broker in cluster.running]
        executed(alive, {"records": records, "group_offsets": of_group}, f"{begin}")
        if victim is not None:
            cluster.start(victim)
    stale = {"group": "enrich", "member_id": "m-1", "generation": generation + 1, "offsets": offsets}
    refused = settled(urls[0], "POST", EXECUTE, {"records": records, "group_offsets": stale})
    assert (refused.status, refused.code) == (409, "stale_generation")
    for url in urls:
        assert [visible(url, topic) for topic in TOPICS] == [inputs, inputs]
        (item,) = settled(url, "GET", "/v1/groups/enrich/offsets?lag=false").rows("items")
        assert item["committed_offset"] == len(inputs)
