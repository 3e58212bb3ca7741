"""Delayed messages on real brokers: each is delivered once, and none is early."""

from __future__ import annotations

import random
import time

import pytest

from chaos.cluster import Cluster
from raftlog.testing.kit import Raftlog
from tests.helpers.real_cluster import call, create_topic, eventually, partitions_of, read_all, surely

pytestmark = pytest.mark.e2e

MESSAGES = 300
PARTITIONS = 3
SPREAD_MS = 18_000
KILLS = 3  # at least; they go on until the last message is due


def delivered(urls: list[str], topic: str) -> list[tuple[str, int]]:
    """Value and append time of each record."""
    found: list[tuple[str, int]] = []
    for partition in range(PARTITIONS):
        path = f"/v1/topics/{topic}/partitions/{partition}/records?offset=0&limit=10000"
        answer = call(urls[0], "GET", path)
        if answer.status == 200:
            found += ((str(row["value"]), int(str(row["timestamp"]))) for row in answer.rows())
    return found


# requirement: A3
def test_each_message_is_delivered_once_and_none_early_while_leaders_are_killed(cluster: Cluster) -> None:
    rng = random.Random(20)
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    begun = time.time_ns() // 1_000_000
    due: dict[str, int] = {}
    unknown: set[str] = set()
    for number in range(0, MESSAGES, 10):
        at_ms = {f"m{n}": begun + 4_000 + rng.randrange(SPREAD_MS) for n in range(number, number + 10)}
        records = [{"key": name, "value": name, "deliver_at": when} for name, when in at_ms.items()]
        answer = call(rng.choice(cluster.urls), "POST", "/v1/topics/orders/records", {"records": records})
        if answer.status != 200:
            unknown |= set(at_ms)
            continue
        for name, row in zip(at_ms, answer.rows(), strict=True):
            assert row["deliver_at"] == at_ms[name]
        due |= at_ms
    assert len(due) > MESSAGES / 2, answer
    kills: list[int] = []
    while time.time_ns() // 1_000_000 < max(due.values()) or len(kills) < KILLS:
        topic = "orders" if len(kills) % 2 else "__delayed"
        partition = rng.randrange(len(partitions_of(cluster.urls[0], topic)) or 1)
        victim = cluster.leader(topic, partition)
        cluster.kill(victim)
        kills.append(time.time_ns() // 1_000_000)
        time.sleep(rng.random() * 2)
        cluster.start(victim)

    def complete() -> bool:
        return {name for name, _ in delivered(cluster.urls, "orders")} >= set(due)

    eventually(complete, what="all messages")
    eventually(
        lambda: not call(cluster.urls[0], "GET", "/v1/delayed").rows("items"),
        what="none pending",
    )
    arrived = delivered(cluster.urls, "orders")
    names = [name for name, _ in arrived]
    late = sorted(when - due[name] for name, when in arrived if name in due)
    print(
        f"{len(names)} delivered of {len(due)} accepted; "
        f"late by p50 {late[len(late) // 2]} ms, max {late[-1]} ms"
    )
    print(f"kills {[at_ms - begun for at_ms in kills]} ms after the beginning")
    assert sum(kills[0] < when < kills[-1] for _, when in arrived) > MESSAGES / 4, kills
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
    assert set(due) <= set(names) <= set(due) | unknown
    assert late[0] >= 0


# requirement: A3
def test_a_message_for_a_deleted_topic_keeps_the_reason(unbroken: Cluster) -> None:
    url, rng = unbroken.urls[0], random.Random(1)
    create_topic(url, "brief", 1)
    path = "/v1/topics/brief/records?delay=3s"
    (row,) = surely(unbroken.urls, "POST", path, {"records": [{"value": 1}]}, rng).rows()
    assert call(url, "DELETE", "/v1/topics/brief").status == 200
    one = f"/v1/delayed/{row['delayed_id']}"

    def failed() -> bool:
        return call(url, "GET", one).json.get("state") == "failed"

    eventually(failed, what="the message fails")
    assert "deleted" in str(call(url, "GET", one).json["reason"])
    create_topic(url, "brief", 1)
    surely(unbroken.urls, "PATCH", one, {"delay": 0}, rng)
    eventually(lambda: "again" in str(call(url, "GET", one).json.get("reason")), what="another reason")
    assert read_all(url, "brief") == []
    assert surely(unbroken.urls, "DELETE", one, None, rng).status == 204


# requirement: A3
def test_a_cancelled_message_is_not_delivered(unbroken: Cluster) -> None:
    url, rng = unbroken.urls[0], random.Random(2)
    create_topic(url, "some", 1)
    records = [{"value": number, "delay": "3s"} for number in range(2)]
    first, second = surely(unbroken.urls, "POST", "/v1/topics/some/records", {"records": records}, rng).rows()
    assert surely(unbroken.urls, "DELETE", f"/v1/delayed/{first['delayed_id']}", None, rng).status == 204
    eventually(lambda: len(read_all(url, "some")) == 1, what="the other one")
    assert [value for _, value in read_all(url, "some")] == ["1"]
    late = surely(unbroken.urls, "DELETE", f"/v1/delayed/{second['delayed_id']}", None, rng)
    assert (late.status, late.code) == (409, "already_delivered")


# requirement: A6
def test_an_unpaid_order_is_cancelled_after_thirty_minutes(raftlog: Raftlog) -> None:
    """Each order sends a check of itself to the future; an order that is paid by then is left alone."""
    checks = raftlog.topic()
    paid: set[str] = set()
    for order in ("o1", "o2"):
        record = {"records": [{"key": order, "value": "check"}]}
        answer = surely(
            [raftlog.url], "POST", f"/v1/topics/{checks}/records?delay=30m", record, random.Random(3)
        )
        assert answer.status == 200, answer
    paid.add("o2")
    raftlog.clock.advance("29m")
    time.sleep(2)  # a broker looks at its clock each second
    assert raftlog.read_all(checks) == []
    raftlog.clock.advance("1m")
    raftlog.wait_until(lambda: len(raftlog.read_all(checks)) == 2, "20s")
    due = [message.key for message in raftlog.read_all(checks)]
    assert sorted(key.decode() for key in due if key and key.decode() not in paid) == ["o1"]
