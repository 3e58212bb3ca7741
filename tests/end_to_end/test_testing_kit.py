"""The testing kit: brokers for the tests of other projects."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from raftlog import Client, CommitUnknown, ConnectionLost, NoLeader, NotSent
from raftlog.testing.kit import Raftlog, RaftlogCluster
from raftlog.testing.supervisor import KitFailed, Supervisor
from tests.helpers.real_cluster import call, eventually

pytestmark = pytest.mark.e2e


def test_topics_are_the_tests_own(raftlog: Raftlog) -> None:
    one, other = raftlog.topic(), raftlog.topic(partitions=2, retention_ms="7d")
    raftlog.client.send(one, "a")
    raftlog.client.send(other, "b", partition=1)
    assert one.startswith("test_topics_are_the_tests_own-")
    assert [message.value for message in raftlog.read_all(one)] == [b"a"]
    assert [(message.partition, message.value) for message in raftlog.read_all(other)] == [(1, b"b")]
    assert raftlog.client.topics.describe(other).config["retention.ms"] == 7 * 24 * 3_600_000


def test_records_expire_when_the_clock_is_advanced(raftlog: Raftlog) -> None:
    topic = raftlog.topic(retention_ms="14d")
    old = raftlog.client.send(topic, "old")
    raftlog.clock.advance("15d")
    new = raftlog.client.send(topic, "new")
    assert new.timestamp_ms - old.timestamp_ms >= 15 * 24 * 3_600_000
    raftlog.wait_until(lambda: [message.value for message in raftlog.read_all(topic)] == [b"new"])


def test_the_clock_is_right_again_in_the_next_test(raftlog: Raftlog) -> None:
    receipt = raftlog.client.send(raftlog.topic(), "now")
    assert abs(receipt.timestamp_ms - raftlog.clock.time_ms()) < 3_600_000


def test_a_session_ends_when_the_clock_is_advanced(raftlog: Raftlog) -> None:
    members = "/v1/groups/billing/members"
    body = {"topics": [raftlog.topic()], "member_id": "silent", "session_timeout": "10m"}
    eventually(lambda: call(raftlog.url, "POST", members, body).status == 200, what="it joins")
    raftlog.clock.advance("11m")

    def is_gone() -> bool:
        group = call(raftlog.url, "GET", "/v1/groups/billing")
        return group.status == 200 and not group.rows("members")

    raftlog.wait_until(is_gone, what=str(call(raftlog.url, "GET", "/v1/groups/billing")))


def test_a_partition_survives_its_leader(raftlog_cluster: RaftlogCluster) -> None:
    topic = raftlog_cluster.topic()
    raftlog_cluster.client.send(topic, "before")
    killed = raftlog_cluster.kill_leader(topic)
    raftlog_cluster.client.send(topic, "after")
    raftlog_cluster.start(killed)
    assert [message.value for message in raftlog_cluster.read_all(topic)] == [b"before", b"after"]


def test_the_side_with_a_majority_elects_a_leader(raftlog_cluster: RaftlogCluster) -> None:
    topic = raftlog_cluster.topic()
    alone = raftlog_cluster.leader(topic)
    others = set(raftlog_cluster.brokers) - {alone}
    with raftlog_cluster.partition_network({alone}, others):
        raftlog_cluster.wait_until(lambda: raftlog_cluster.leader(topic) in others)
        url = raftlog_cluster.url_of(alone)
        refused = (CommitUnknown, ConnectionLost, NoLeader, NotSent)  # the first by one that still leads
        with Client(url, retry_timeout="1s") as client, pytest.raises(refused):
            client.topics.create("never")
        raftlog_cluster.client.send(topic, "of the majority")
    raftlog_cluster.client.send(topic, "after", partition=0)
    with Client(url) as client:
        assert client.partition(topic, 0).read().messages[0].value == b"of the majority"


def test_a_slow_disk_slows_what_needs_it(raftlog_cluster: RaftlogCluster) -> None:
    topic = raftlog_cluster.topic()
    raftlog_cluster.client.send(topic, "fast")

    def seconds_to_send() -> float:
        began = time.monotonic()
        raftlog_cluster.client.send(topic, "x")
        return time.monotonic() - began

    raftlog_cluster.slow_disk(1, "300ms")
    raftlog_cluster.slow_disk(2, "300ms")
    for _ in range(5):
        assert seconds_to_send() >= 0.3  # two of three are needed
    raftlog_cluster.kill(1)
    raftlog_cluster.start(1)
    assert seconds_to_send() >= 0.3  # also after a restart
    raftlog_cluster.slow_disk(1, 0)
    raftlog_cluster.slow_disk(2, 0)
    raftlog_cluster.wait_until(lambda: seconds_to_send() < 0.3, what="one send of many that is fast")


def test_what_was_acknowledged_survives_power_losses(raftlog_cluster: RaftlogCluster) -> None:
    topic = raftlog_cluster.topic()
    with raftlog_cluster.client.producer(topic, acks=1) as producer:  # the leader's page cache is enough
        for number in range(50):
            producer.send(f"maybe {number}")
    kept = [raftlog_cluster.client.send(topic, f"kept {number}") for number in range(50)]
    seen = raftlog_cluster.read_all(topic)  # without those that a leader answered and lost with its lead
    for broker in raftlog_cluster.brokers:
        raftlog_cluster.lose_power(broker, seed=broker)
    raftlog_cluster.start()
    found = {message.offset: message.value for message in raftlog_cluster.read_all(topic)}
    assert [found[receipt.offset] for receipt in kept] == [b"kept %d" % number for number in range(50)]
    assert found == {message.offset: message.value for message in seen}


def test_the_clocks_of_a_cluster_move_together(raftlog_cluster: RaftlogCluster) -> None:
    topic = raftlog_cluster.topic(retention_ms="1h")
    raftlog_cluster.client.send(topic, "old")
    raftlog_cluster.kill(3)
    raftlog_cluster.clock.advance("10d")
    raftlog_cluster.start(3)
    new = raftlog_cluster.client.send(topic, "new")
    assert abs(new.timestamp_ms - raftlog_cluster.clock.time_ms()) < 60_000
    raftlog_cluster.wait_until(lambda: len(raftlog_cluster.read_all(topic)) == 1)


def test_only_a_broker_that_is_down_is_dead_when_time_has_passed(raftlog_cluster: RaftlogCluster) -> None:
    topic = raftlog_cluster.topic()
    raftlog_cluster.kill(3)

    def alive() -> list[int]:
        return [broker.broker_id for broker in raftlog_cluster.client.brokers.list() if broker.alive]

    def alive_after(time_passed: str) -> list[int]:
        raftlog_cluster.clock.advance(time_passed)
        raftlog_cluster.client.send(topic, "x")
        return alive()

    # After the others have noticed, and have elected a controller; one that does not run just now counts as
    # silent, too.
    for time_passed in ("1m", "1h"):
        raftlog_cluster.wait_until(lambda time_passed=time_passed: alive_after(time_passed) == [1, 2])


def test_a_broker_that_is_not_there_is_named(raftlog_cluster: RaftlogCluster) -> None:
    with pytest.raises(KitFailed, match=r"there is no broker 4; the brokers are \[1, 2, 3\]"):
        raftlog_cluster.kill(4)
    raftlog_cluster.kill(2)
    with pytest.raises(KitFailed, match="broker 2 is not running"):
        raftlog_cluster.lose_power(2)


def test_a_broker_that_fails_by_itself_is_reported() -> None:
    supervisor = Supervisor()
    cluster = RaftlogCluster(supervisor)
    first = _brokers_of(supervisor)[0]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not _is_running(first), what="it has ended")
    with pytest.raises(KitFailed, match="broker 1 ended with status -9"):
        cluster.close()
    supervisor.close()


def test_no_broker_outlives_the_process_of_the_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # its files are left behind
    supervisor = Supervisor()
    RaftlogCluster(supervisor)
    brokers = _brokers_of(supervisor)
    assert len(brokers) == 3
    os.kill(supervisor.pid, signal.SIGKILL)
    eventually(lambda: not any(map(_is_running, brokers)), what="all brokers have ended")
    supervisor.close()


def _brokers_of(supervisor: Supervisor) -> list[int]:
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return state != "Z" or len(threads) > 1  # once all have ended, its parent may ask for its status
