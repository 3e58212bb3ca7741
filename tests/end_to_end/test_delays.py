"""Delayed messages on real brokers: each is delivered once, and none is early."""

from __future__ import annotations

import random
import time

import pytest

from chaos.cluster import Cluster
from delayed.gone_topics import SWEEP_MS
from raftlog.testing.kit import Raftlog, RaftlogCluster
from tests.helpers.real_cluster import Answer, call, create_topic, eventually, read_all, surely

pytestmark = pytest.mark.e2e

MESSAGES = 300
PARTITIONS = 3
ROUNDS = 6  # in each, an hour passes while a broker is down
HOUR_MS = 3_600_000
WITNESSES = 40  # messages that are due a little earlier; they are kept in all partitions of ``__delayed``


# requirement: A3
def test_each_message_is_delivered_once_and_none_early_while_leaders_are_killed(
    raftlog_cluster: RaftlogCluster,
) -> None:
    cluster, rng = raftlog_cluster, random.Random(20)
    topic = cluster.topic(PARTITIONS)
    begun = cluster.clock.time_ms()
    due: dict[str, int] = {}
    unknown: set[str] = set()
    for number in range(0, MESSAGES, 10):
        at_ms = {f"m{n}": begun + rng.randrange(60_000, ROUNDS * HOUR_MS) for n in range(number, number + 10)}
        records = [{"key": name, "value": name, "deliver_at": when} for name, when in at_ms.items()]
        answer = call(rng.choice(cluster.urls), "POST", f"/v1/topics/{topic}/records", {"records": records})
        if answer.status != 200:
            unknown |= set(at_ms)
            continue
        for name, row in zip(at_ms, answer.rows(), strict=True):
            assert row["deliver_at"] == at_ms[name]
        due |= at_ms
    assert len(due) > MESSAGES / 2, answer

    def delivered() -> list[str]:
        return [(message.value or b"").decode() for message in cluster.read_all(topic)]

    def wait_for_all_until(time_ms: int) -> None:
        wanted = {name for name, when in due.items() if when <= time_ms}
        cluster.wait_until(lambda: wanted <= set(delivered()), what="the messages that are due")
        early = {name for name in delivered() if due.get(name, 0) > cluster.clock.time_ms()}
        assert not early

    for number in range(1, ROUNDS + 1):
        victim = cluster.kill_leader(*((topic, 0), ("__delayed", rng.randrange(16)))[number % 2])
        cluster.clock.advance("1h")
        wait_for_all_until(begun + number * HOUR_MS)
        cluster.start(victim)
    cluster.wait_until(lambda: not call(cluster.url, "GET", "/v1/delayed").rows("items"), what="none pending")
    names = delivered()
    print(f"{len(names)} delivered of {len(due)} accepted")
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
    assert set(due) <= set(names) <= set(due) | unknown


# requirement: A3
def test_a_message_for_a_deleted_topic_keeps_the_reason(unbroken: Cluster) -> None:
    url, rng = unbroken.urls[0], random.Random(1)
    create_topic(url, "brief", 1)
    path = "/v1/topics/brief/records?delay=1h"
    (row,) = surely(unbroken.urls, "POST", path, {"records": [{"value": 1}]}, rng).rows()
    deleted_s = time.monotonic()
    eventually(  # by this request, or by one before it without an answer
        lambda: call(url, "DELETE", "/v1/topics/brief").status in (200, 404), what="a topic that is deleted"
    )
    one = f"/v1/delayed/{row['delayed_id']}"

    def has_left(answer: Answer) -> bool:
        """Whether the message is gone, as it may be once its reason could be read for a while."""
        return answer.status == 404 and time.monotonic() - deleted_s >= SWEEP_MS / 1000

    def failed_since(word: str) -> bool:
        answer = call(url, "GET", one)
        has_failed = answer.json.get("state") == "failed" and word in str(answer.json["reason"])
        return has_failed or has_left(answer)

    surely(unbroken.urls, "PATCH", one, {"delay": 0}, rng)
    eventually(lambda: failed_since("deleted"), what="the message fails")
    create_topic(url, "brief", 1)
    surely(unbroken.urls, "PATCH", one, {"delay": 0}, rng)
    eventually(lambda: failed_since("again"), what="another reason")
    assert read_all(url, "brief") == []
    cancelled = surely(unbroken.urls, "DELETE", one, None, rng)
    assert cancelled.status == 204 or has_left(cancelled)


# requirement: A3
def test_a_cancelled_message_is_not_delivered(raftlog: Raftlog) -> None:
    url, rng, topic = raftlog.url, random.Random(2), raftlog.topic()
    records = [{"value": number, "delay": "1h"} for number in range(2)]
    sent = surely([url], "POST", f"/v1/topics/{topic}/records", {"records": records}, rng)
    first, second = sent.rows()
    assert surely([url], "DELETE", f"/v1/delayed/{first['delayed_id']}", None, rng).status == 204
    raftlog.clock.advance("61m")
    raftlog.wait_until(lambda: raftlog.read_all(topic), what="the other one")
    assert [message.value for message in raftlog.read_all(topic)] == [b"1"]
    late = surely([url], "DELETE", f"/v1/delayed/{second['delayed_id']}", None, rng)
    assert (late.status, late.code) == (409, "delayed_already_delivered")


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
    witnesses = {"records": [{"key": f"w{number}", "value": "due"} for number in range(WITNESSES)]}
    path = f"/v1/topics/{checks}/records?delay=24m"
    assert surely([raftlog.url], "POST", path, witnesses, random.Random(4)).status == 200
    raftlog.clock.advance("25m")
    raftlog.wait_until(
        lambda: len(raftlog.read_all(checks)) >= WITNESSES, what="what is due before the checks"
    )
    assert len(raftlog.read_all(checks)) == WITNESSES
    raftlog.clock.advance("5m")  # more than this test takes so far
    raftlog.wait_until(lambda: len(raftlog.read_all(checks)) == WITNESSES + 2, what="the checks")
    due = [message.key for message in raftlog.read_all(checks) if message.value == b"check"]
    assert sorted(key.decode() for key in due if key and key.decode() not in paid) == ["o1"]
