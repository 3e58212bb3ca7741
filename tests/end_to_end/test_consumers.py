"""The client's consumers as members of a group, blocking and asynchronous, on real brokers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import pytest

from chaos.cluster import Cluster
from groups.records import TOPIC as OFFSETS
from raftlog import Client, Consumer, MemberNotFound, RebalanceInProgress, StaleGeneration, aio
from raftlog.assignors import Plan, Subscription
from raftlog.client.consumer.core import CLOSE_S
from raftlog.testing.waits import LIMIT_S
from raftlog.types import TopicPartition
from tests.helpers.real_cluster import call, create_topic, eventually, has_leaders, next_line, surely

pytestmark = pytest.mark.e2e

SESSION_S = 15  # its heartbeats are five seconds apart: a machine that is busy may delay one for ten
LONG = "30s"  # a session that no busy machine ends; a member whose leave got no answer is gone in time


@pytest.fixture
def client(unbroken: Cluster) -> Iterator[Client]:
    with Client(",".join(unbroken.urls), retry_timeout=f"{LIMIT_S:g}s") as made:
        yield made


def filled(unbroken: Cluster, client: Client, name: str, *, partitions: int = 3, count: int = 90) -> str:
    """A topic with numbered records, spread over its partitions.

    All brokers know it: a coordinator that hears of it later would begin another rebalance.
    """
    create_topic(unbroken.urls[0], name, partitions)
    for url in unbroken.urls:
        eventually(partial(has_leaders, url, name, partitions), what=f"{name} at {url}")
    with client.producer(name, delivery_timeout=f"{LIMIT_S:g}s") as producer:
        for number in range(count):
            producer.send(str(number), partition=number % partitions)
    return name


def read(consumer: Consumer, count: int) -> list[int]:
    """So many values; the last is not acknowledged yet."""
    found: list[int] = []

    def has_all() -> bool:
        message = consumer.poll("200ms") if len(found) < count else None
        if message is not None:
            found.append(int(message.value))
        return len(found) >= count

    eventually(has_all, what=f"{count} records", progress=lambda: len(found))
    return found


def offsets_of(client: Client, topic: str, partition: int = 0) -> list[int]:
    """The offsets of all records of a partition; those between them are of elections."""
    log, found, offset = client.partition(topic, partition), list[int](), 0
    while (chunk := log.read(offset)).next_offset > offset:
        found += (message.offset for message in chunk)
        offset = chunk.next_offset
    return found


def heartbeats(cluster: Cluster) -> int:
    """The number of heartbeats of members that all brokers have answered."""
    pages = [call(url, "GET", "/metrics").body.decode() for url in cluster.urls]
    lines = [line for page in pages for line in page.splitlines() if ":heartbeat" in line]
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in lines
        if line.startswith("raftlog_http_requests_total{") and 'status="200"' in line
    )


def block_longer_than_a_session(cluster: Cluster) -> None:
    """Return when a member has sent heartbeats, three of which make a session, for longer than its session.

    A heartbeat that is late by most of a session is no error: the test asks that they are sent at all.
    """
    begun_s, before = time.monotonic(), heartbeats(cluster)
    eventually(
        lambda: heartbeats(cluster) >= before + 4 and time.monotonic() > begun_s + SESSION_S,
        what="heartbeats while the handler blocks",
    )


def term_of(cluster: Cluster, client: Client, group: str) -> int:
    """The term in which a group has its coordinator."""
    path = f"/v1/groups/{group}/coordinator"
    found = surely(cluster.urls, "GET", path, None, random.Random(group))
    return client.topics.partitions(OFFSETS)[found.number("partition")].leader_epoch


def committed(client: Client, group: str) -> dict[int, int]:
    return {item.partition: item.committed_offset for item in client.groups.offsets(group)}


# requirement: G2 G3 C5
def test_each_group_gets_every_record_and_continues_where_it_was(unbroken: Cluster, client: Client) -> None:
    topic = filled(unbroken, client, "every-record")
    for group in ("one", "two"):
        with client.consumer(group, [topic], session_timeout=LONG) as consumer:
            assert sorted(read(consumer, 90)) == list(range(90))
            consumer.commit()  # that of the end is given up after seconds
        assert committed(client, group) == {n: offsets_of(client, topic, n)[29] + 1 for n in range(3)}
    client.send(topic, "90", partition=0)
    with client.consumer("one", [topic], session_timeout=LONG) as consumer:
        assert read(consumer, 1) == [90]


# requirement: D2
def test_at_least_once_hands_a_record_out_again_that_was_being_handled(
    unbroken: Cluster, client: Client
) -> None:
    topic = filled(unbroken, client, "again", partitions=1, count=10)

    def fail_at_the_fifth() -> None:
        with client.consumer("again", topic, session_timeout=LONG) as consumer:
            for message in consumer:
                if message.value == b"3":
                    consumer.commit()  # that of the end is given up after seconds
                if message.value == b"4":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_the_fifth()
    assert committed(client, "again") == {0: offsets_of(client, topic)[3] + 1}
    with client.consumer("again", topic, session_timeout=LONG) as consumer:
        assert read(consumer, 6) == [4, 5, 6, 7, 8, 9]


# requirement: G4 G8 G9
def test_two_consumers_share_and_the_one_that_is_left_takes_over(unbroken: Cluster, client: Client) -> None:
    topic = filled(unbroken, client, "shared", partitions=4, count=0)
    begun_in = term_of(unbroken, client, "shared")
    with client.consumer("shared", topic, member_id="a", session_timeout=LONG) as first:
        eventually(lambda: len(first.assignment) == 4, what="all partitions")
        with client.consumer("shared", topic, member_id="b", session_timeout=LONG) as second:
            eventually(
                lambda: len(first.assignment) == len(second.assignment) == 2,
                what="half for each",
            )
            assert not first.assignment & second.assignment
            leaves_s = time.monotonic()
        has_left = time.monotonic() < leaves_s + CLOSE_S  # else it may have given up, and its session ends
        eventually(lambda: len(first.assignment) == 4, what="all partitions again")
        reasons = [each.reason for each in client.groups.rebalances("shared")]
    if (
        has_left and term_of(unbroken, client, "shared") == begun_in
    ):  # a new coordinator has reasons of its own
        assert reasons == ["member b left", "member b joined", "member a joined"]


def test_an_application_that_blocks_its_event_loop_keeps_its_partitions(
    unbroken: Cluster, client: Client
) -> None:
    topic = filled(unbroken, client, "blocked", partitions=1, count=2)

    async def consume() -> int:
        async with (
            aio.Client(",".join(unbroken.urls)) as own,
            own.consumer("blocked", topic, session_timeout=f"{SESSION_S}s") as consumer,
        ):
            found = []
            async for message in consumer:
                found.append(message.value)
                if len(found) == 1:
                    block_longer_than_a_session(unbroken)  # and with it the loop, as careless handlers do
                if len(found) == 2:
                    return consumer.generation
        raise AssertionError

    assert asyncio.run(consume()) == 1
    assert len(client.groups.rebalances("blocked")) == 1


# requirement: G10
def test_a_stopped_process_loses_its_partitions_and_is_fenced(unbroken: Cluster, client: Client) -> None:
    topic = filled(unbroken, client, "stopped", partitions=1, count=5)
    script = (
        "import sys, raftlog\n"
        "with raftlog.Client(sys.argv[1], retry_timeout=sys.argv[3]) as client:\n"
        "    consumer = client.consumer('stopped', sys.argv[2], session_timeout='1s', commit_interval='1h')\n"
        "    print(int(next(iter(consumer)).value), flush=True)\n"
        "    sys.stdin.readline()\n"
        "    try:\n"
        "        consumer.commit()\n"
        "    except raftlog.RaftlogError as error:\n"
        "        print(type(error).__name__, flush=True)\n"
        "    else:\n"
        "        print('has joined again', flush=True)  # and has nothing to commit\n"
    )
    command = [sys.executable, "-P", "-c", script, ",".join(unbroken.urls), topic, f"{LIMIT_S:g}s"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert next_line(process) == "0"
        os.kill(process.pid, signal.SIGSTOP)
        with client.consumer("stopped", topic, session_timeout=LONG) as other:
            assert read(other, 5) == [0, 1, 2, 3, 4]
            other.commit()  # before the partition may move again
            process.stdin.write("\n")
            process.stdin.flush()
            os.kill(process.pid, signal.SIGCONT)
            fenced = {error.__name__ for error in (MemberNotFound, StaleGeneration, RebalanceInProgress)}
            assert next_line(process) in {*fenced, "has joined again"}
    assert committed(client, "stopped") == {0: offsets_of(client, topic)[4] + 1}


class EverythingToTheFirst:
    """A strategy of the application's own."""

    name = "everything-to-the-first"

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """By name."""
        first = min(members)
        everything = frozenset(
            TopicPartition(topic, number)
            for topic, count in partition_counts.items()
            for number in range(count)
        )
        return {member: everything if member == first else frozenset() for member in members}


# requirement: G14
def test_a_strategy_of_the_application(unbroken: Cluster, client: Client) -> None:
    topic = filled(unbroken, client, "own-strategy", partitions=3, count=0)
    options = {"strategies": [EverythingToTheFirst()]}
    with client.consumer("own", topic, member_id="b", **options) as second:  # type: ignore[arg-type]
        eventually(lambda: len(second.assignment) == 3, what="all partitions")
        with client.consumer("own", topic, member_id="a", **options) as first:  # type: ignore[arg-type]
            eventually(lambda: len(first.assignment) == 3, what="all partitions")
            eventually(lambda: not second.assignment, what="no partition")


@pytest.mark.parametrize("strategy", ["roundrobin", "sticky", "cooperative-sticky"])
def test_strategies_by_name(unbroken: Cluster, client: Client, strategy: str) -> None:
    topic = filled(unbroken, client, f"by-{strategy}", partitions=4, count=0)
    with (
        client.consumer(strategy, topic, strategies=[strategy], session_timeout=LONG) as first,
        client.consumer(strategy, topic, strategies=[strategy], session_timeout=LONG) as second,
    ):
        eventually(lambda: len(first.assignment) == len(second.assignment) == 2, what="two for each")
        assert not first.assignment & second.assignment


def test_seek_pause_resume_positions_and_lag(unbroken: Cluster, client: Client) -> None:
    topic = filled(unbroken, client, "seeking", partitions=2, count=20)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with client.consumer("seeking", topic, session_timeout=LONG) as consumer:
        eventually(lambda: consumer.assignment == {zero, one}, what="both partitions")
        consumer.pause([one])
        assert read(consumer, 10) == list(range(0, 20, 2))
        assert consumer.poll("200ms") is None
        offsets = offsets_of(client, topic)
        assert consumer.positions == {zero: offsets[9] + 1, one: 0}
        consumer.seek(topic, 0, offsets[8])
        assert read(consumer, 2) == [16, 18]
        consumer.commit()
        consumer.seek(topic, 0, "earliest")
        consumer.resume([one])
        assert sorted(read(consumer, 20)) == list(range(20))
        eventually(lambda: consumer.lag == {zero: 0, one: 0}, what="no lag")
        with pytest.raises(KeyError, match="seeking/5"):
            consumer.seek(topic, 5, 0)


def test_consumers_and_batches_under_a_crowd(unbroken: Cluster, client: Client) -> None:
    topic = filled(unbroken, client, "crowd", partitions=6, count=600)
    seen: Counter[int] = Counter()
    stop = threading.Event()

    def work() -> None:
        with client.consumer("crowd", topic, limit=20) as consumer:
            for batch in consumer.batches():
                seen.update(int(message.value) for message in batch)
                if stop.is_set():
                    return

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
        eventually(lambda: len(seen) >= 50, what="some records")
    eventually(lambda: len(seen) == 600, what="all records")
    with client.producer(topic) as producer:
        stop.set()
        for number in range(600, 700):
            producer.send(str(number), partition=number % 6)
    for thread in threads:
        thread.join(timeout=LIMIT_S)
        assert not thread.is_alive()


def test_bad_options_are_named() -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(ValueError, match="delivery is 'sometimes'"):
            client.consumer("g", "t", delivery="sometimes")
        with pytest.raises(ValueError, match="strategies"):
            client.consumer("g", "t", strategies=["rang"])
        with pytest.raises(ValueError, match="topics"):
            client.consumer("g", [])
