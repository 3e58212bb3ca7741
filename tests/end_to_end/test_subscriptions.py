"""Consumers that subscribe by a pattern, or read partitions of their choice, on real brokers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest

from chaos.cluster import Cluster
from raftlog import Client, Conflict, Consumer, Message
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import create_topic, delete_topic, eventually

pytestmark = pytest.mark.e2e

SESSION = f"{LIMIT_S:g}s"  # a member that is late on a busy machine gets no record twice


@pytest.fixture
def client(unbroken: Cluster) -> Iterator[Client]:
    with Client(",".join(unbroken.urls)) as made:
        yield made


def filled(unbroken: Cluster, client: Client, name: str, count: int = 4) -> None:
    create_topic(unbroken.urls[0], name, 2)
    for number in range(count):
        client.send(name, f"{name} {number}", partition=number % 2)


def read(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []

    def has_all() -> bool:
        message = consumer.poll("200ms")
        if message is not None:
            found.append(message.value.decode())
        return len(found) >= count

    eventually(has_all, what=f"{count} messages")
    return sorted(found)


# requirement: G1
def test_a_pattern_finds_topics_that_are_made_and_survives_those_that_are_deleted(
    unbroken: Cluster, client: Client
) -> None:
    filled(unbroken, client, "sales.eu")
    filled(unbroken, client, "other.sales.eu")
    pattern = re.compile(r"sales\.\w+")
    with client.consumer("sales", pattern, topics_refresh="200ms", session_timeout=SESSION) as consumer:
        assert read(consumer, 4) == [f"sales.eu {number}" for number in range(4)]
        filled(unbroken, client, "sales.us")
        assert read(consumer, 4) == [f"sales.us {number}" for number in range(4)]
        delete_topic(unbroken.urls[0], "sales.eu")
        client.send("sales.us", "sales.us 4", partition=0)
        assert read(consumer, 1) == ["sales.us 4"]
        eventually(
            lambda: {target.topic for target in consumer.assignment} == {"sales.us"},
            what="the deleted topic has gone",
        )


# requirement: G1
def test_a_pattern_without_a_match_waits_for_one(unbroken: Cluster, client: Client) -> None:
    late = re.compile("late-.*")
    with client.consumer("late", late, topics_refresh="100ms", session_timeout=SESSION) as consumer:
        assert consumer.poll("300ms") is None
        filled(unbroken, client, "late-1", 2)
        assert read(consumer, 2) == ["late-1 0", "late-1 1"]


# requirement: C5 G4
def test_chosen_partitions_are_read_from_their_commits_without_a_rebalance(
    unbroken: Cluster, client: Client
) -> None:
    filled(unbroken, client, "chosen", 8)
    with (
        client.consumer("chosen", assign=[("chosen", 0)]) as even,
        client.consumer("chosen", assign=[("chosen", 1)]) as odd,
    ):
        assert read(even, 4) == [f"chosen {number}" for number in (0, 2, 4, 6)]
        assert read(odd, 2) == ["chosen 1", "chosen 3"]
        even.seek("chosen", 0, 3)
        assert read(even, 1) == ["chosen 6"]
    with client.consumer("chosen", assign=[("chosen", 0), ("chosen", 1)]) as both:
        assert read(both, 2) == ["chosen 5", "chosen 7"]
    assert client.groups.rebalances("chosen") == []
    with client.consumer(None, assign=[("chosen", 1)]) as reader:
        assert len(read(reader, 4)) == 4
    assert {item.partition: item.committed_offset for item in client.groups.offsets("chosen")} == {0: 4, 1: 4}


def test_chosen_partitions_of_a_group_with_members_are_told_so(unbroken: Cluster, client: Client) -> None:
    filled(unbroken, client, "busy")
    with (
        client.consumer("busy", "busy", session_timeout=SESSION) as member,
        client.consumer("busy", assign=[("busy", 0)], commit_interval="100ms") as stranger,
    ):
        assert len(read(member, 4)) == 4

        with pytest.raises(Conflict, match="member"):
            read(stranger, 1000)


# requirement: D2 G4
def test_a_poll_that_waits_through_a_rebalance_loses_nothing(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "waiting", 2)
    with client.consumer("waiting", "waiting") as first:
        eventually(lambda: len(first.assignment) == 2, what="all partitions")
        found: list[Message | None] = []
        poll = threading.Thread(target=lambda: found.append(first.poll("10m")))
        poll.start()
        with client.consumer("waiting", "waiting") as second:
            eventually(lambda: len(second.assignment) == 1, what="one partition")
            eventually(lambda: len(first.assignment) == 1 and first.is_assigned, what="the other")
            for partition in range(2):
                client.send("waiting", "here", partition=partition)
            poll.join()
            assert [message and message.offset for message in found] == [0]
