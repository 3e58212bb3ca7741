"""Transactions on real brokers, over HTTP alone: all of it becomes visible, or nothing, whoever is killed."""

from __future__ import annotations

from functools import partial
from itertools import count

import msgspec
import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import (
    Answer,
    call,
    create_topic,
    eventually,
    has_leaders,
    partitions_of,
    read_all,
)
from transactions.batches import partition_of
from transactions.records import TOPIC

pytestmark = pytest.mark.e2e

TRANSACTIONS = "/v1/transactions"
RETRYABLE = (429, 503, 504)
TOPICS = ("orders", "totals")


def create_topics(urls: list[str]) -> None:
    """All brokers know them: the assignment of a coordinator that hears of them later changes."""
    for topic in TOPICS:
        create_topic(urls[0], topic, 1)
        for url in urls:
            eventually(partial(has_leaders, url, topic, 1), what=f"{topic} at {url}")


def answer_to(
    urls: list[str], path: str, body: object, sent: dict[str, str] | None = None, *, method: str = "POST"
) -> Answer:
    """The answer to a request that may be repeated, once it is final."""
    turns = count()

    def answered() -> Answer | None:
        try:
            answer = call(urls[next(turns) % len(urls)], method, path, body, sent)
        except OSError:
            return None
        is_over = answer.status == 200 or answer.json.get("retryable") is not True
        return answer if is_over and answer.status not in RETRYABLE else None

    return eventually(answered, what=f"a broker answers {path}")


def asked(
    urls: list[str], path: str, body: object, sent: dict[str, str] | None = None, *, method: str = "POST"
) -> dict[str, object]:
    """The JSON of the response to a request that may be repeated."""
    answer = answer_to(urls, path, body, sent, method=method)
    assert answer.status in (200, 201), answer
    return dict(answer.json)


def member_poll(url: str, poll: dict[str, object]) -> dict[str, object] | None:
    """The response to a poll; None while the member has not joined the group yet."""
    polled = asked([url], "/v1/groups/late/members/a:poll", poll)
    return polled if polled["action"] == "continue" else None


def opened(urls: list[str], name: str) -> str:
    """The id of a new transaction."""
    return str(asked(urls, TRANSACTIONS, {"transactional_id": name, "timeout": "10m"})["id"])


def write(urls: list[str], transaction: str, number: int, sequence: int = 0) -> None:
    """One record to partition 0 of each topic; a repetition is stored once."""
    sent = {"Raftlog-Transaction": transaction, "Raftlog-Producer-Sequence": str(sequence)}
    for topic in TOPICS:
        asked(urls, f"/v1/topics/{topic}/partitions/0/records", {"records": [{"value": number}]}, sent)


def visible(url: str, topic: str) -> list[int]:
    """The values that readers see by default."""
    return [int(str(value)) for _, value in read_all(url, topic)]


# requirement: D3
def test_a_transaction_over_two_topics_is_visible_with_its_commit(unbroken: Cluster) -> None:
    create_topics(unbroken.urls)
    url = unbroken.urls[0]
    first = opened([url], "copy")
    write([url], first, 1)
    assert [visible(url, topic) for topic in TOPICS] == [[], []]
    of_all = "?isolation=uncommitted"
    raw = answer_to([url], f"/v1/topics/orders/partitions/0/records{of_all}", None, method="GET")
    assert [record["value"] for record in raw.rows()] == ["1"]
    first_offset = raw.rows()[0]["offset"]
    assert raw.headers["raftlog-last-stable-offset"] == str(first_offset)
    ends = "/v1/topics/orders/partitions/0/offsets"
    assert asked([url], ends, None, method="GET")["offset"] == first_offset
    end = asked([url], ends + of_all, None, method="GET")["offset"]
    assert int(str(end)) > int(str(first_offset))  # an election has an offset, too
    at_end = {"topics": ["orders"], "reset": "latest", "wait": "0s"}
    polled = eventually(lambda: member_poll(url, at_end), what="a member of the group")
    assert polled["positions"] == [{"topic": "orders", "partition": 0, "offset": first_offset}]
    second = str(asked([url], f"{TRANSACTIONS}/{first}:commit", None)["next_id"])
    assert [visible(url, topic) for topic in TOPICS] == [[1], [1]]
    write([url], second, 2)
    third = str(asked([url], f"{TRANSACTIONS}/{second}:abort", None)["next_id"])
    write([url], third, 3)
    incarnation = opened([url], "copy")
    late = asked([url], f"{TRANSACTIONS}/{third}:commit", None)
    assert late["outcome"] == "aborted", "the earlier incarnation learns what became of its transaction"
    zombie = {"Raftlog-Transaction": str(late["next_id"])}
    fenced = answer_to([url], "/v1/topics/orders/records", {"records": [{"value": 0}]}, zombie)
    assert fenced.json["code"] == "producer_fenced"
    write([url], incarnation, 4)
    asked([url], f"{TRANSACTIONS}/{incarnation}:commit", None)
    assert [visible(url, topic) for topic in TOPICS] == [[1, 4], [1, 4]]


# requirement: D3
def test_killed_brokers_tear_no_transaction(cluster: Cluster) -> None:
    """Every second transaction is committed, while each broker is killed once."""
    create_topics(cluster.urls)
    transaction = opened(cluster.urls, "copy")
    for number in range(30):
        write(cluster.urls, transaction, number)
        if number % 10 == 5:
            cluster.kill(1 + number // 10)
        verb = "commit" if number % 2 else "abort"
        ended = asked(cluster.urls, f"{TRANSACTIONS}/{transaction}:{verb}", None)
        assert ended["outcome"] == ("committed" if number % 2 else "aborted")
        transaction = str(ended["next_id"])
        if number % 10 == 5:
            cluster.start(1 + number // 10)
    for url in cluster.urls:
        for topic in TOPICS:
            assert visible(url, topic) == list(range(1, 30, 2)), f"{topic} through {url}"


def offset_of(urls: list[str], group: str, *, query: str = "") -> int:
    """The committed offset of partition 0 of ``orders``; 0 without one."""
    found = asked(urls, f"/v1/groups/{group}/offsets?lag=false{query}", None, method="GET")
    (item,) = msgspec.convert(found["items"], list[dict[str, object]]) or ({"committed_offset": 0},)
    return int(str(item["committed_offset"]))


def joined(urls: list[str], group: str) -> int:
    """``m-1`` is the only member; its generation."""
    ask = {"topics": ["orders"], "member_id": "m-1", "session_timeout": "30m"}
    generation = asked(urls, f"/v1/groups/{group}/members", ask)["generation"]
    asked(urls, f"/v1/groups/{group}/members/m-1:sync", {"generation": generation, "assignments": "auto"})
    return int(str(generation))


def killed_before_the_end(cluster: Cluster, number: int) -> int | None:
    """In two rounds a broker is killed: the coordinator of the group, and that of the transaction."""
    if number == 3:
        found = asked(cluster.urls, "/v1/groups/copiers/coordinator", None, method="GET")
        return int(str(found["broker_id"]))
    if number == 5:
        rows = eventually(lambda: partitions_of(cluster.urls[0], TOPIC), what=f"partitions of {TOPIC}")
        return cluster.leader(TOPIC, partition_of("copy", len(rows)))
    return None


# requirement: D3
def test_input_is_processed_once_whatever_is_killed_and_aborted(cluster: Cluster) -> None:
    """A member of a group consumes, transforms and produces; every second transaction is aborted."""
    urls, inputs = cluster.urls, list(range(12))
    create_topics(urls)
    records = {"records": [{"value": number} for number in inputs]}
    asked(urls, "/v1/topics/orders/partitions/0/records", records)
    transaction, generation = opened(urls, "copy"), joined(urls, "copiers")
    for number in range(8):
        begin = offset_of(urls, "copiers", query="&stable=true&member_id=m-1")
        values = {"records": [{"value": each} for each in inputs[begin : begin + 3]]}
        sent = {"Raftlog-Transaction": transaction, "Raftlog-Producer-Sequence": "0"}
        asked(urls, "/v1/topics/totals/partitions/0/records", values, sent)
        offsets = [{"topic": "orders", "partition": 0, "offset": begin + 3}]
        added = {"group": "copiers", "member_id": "m-1", "generation": generation, "offsets": offsets}
        asked(urls, f"{TRANSACTIONS}/{transaction}:add-offsets", added)
        assert offset_of(urls, "copiers") == begin, "an open transaction shows no offset"
        victim = killed_before_the_end(cluster, number)
        if victim is not None:
            cluster.kill(victim)
        verb = "commit" if number % 2 else "abort"
        ended = asked(urls, f"{TRANSACTIONS}/{transaction}:{verb}", None)
        assert offset_of(urls, "copiers") == begin + 3 * (number % 2)
        transaction = str(ended["next_id"])
        if victim is not None:
            cluster.start(victim)
    for url in urls:
        assert visible(url, "totals") == inputs
