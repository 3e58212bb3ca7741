"""Partitions that are added to a topic in use: its records stay, producers and groups use the new ones."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from chaos.cluster import Cluster
from raftlog import Client, Consumer, Message
from raftlog.client.messages import Chunk
from tests.helpers.command_line import run
from tests.helpers.real_cluster import call, create_topic, eventually

BEFORE, AFTER = 2, 3
CHI_SQUARE_MAX = 13.8  # two degrees of freedom: one run of a thousand is above it


@pytest.fixture
def client(unbroken: Cluster) -> Iterator[Client]:
    with Client(",".join(unbroken.urls)) as made:
        yield made


class Reading:
    """A member of a group on a thread of its own, which handles one record after the other."""

    def __init__(self, client: Client, group: str, topic: str, reset: str) -> None:
        self.seen: list[Message] = []
        self._stopping = threading.Event()
        self._consumer: Consumer = client.consumer(
            group, topic, reset=reset, session_timeout="2m", commit_interval="200ms"
        )
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def values(self) -> set[str]:
        """What it has seen; a rebalance may show a record to two members."""
        return {message.value.decode() for message in list(self.seen)}

    @property
    def partitions(self) -> set[int]:
        """The partitions of this member."""
        return {target.partition for target in self._consumer.assignment}

    def _read(self) -> None:
        with self._consumer as consumer:
            while not self._stopping.is_set():
                message = consumer.poll("100ms")
                if message is not None:
                    self.seen.append(message)


def stored(client: Client, topic: str, partition: int) -> list[tuple[int, object]]:
    """The offsets and values of a partition."""
    chunk: Chunk = client.partition(topic, partition).read("earliest", max_bytes=8 << 20)
    return [(message.offset, message.value) for message in chunk.messages]


def all_stored(client: Client, topic: str, count: int) -> list[list[tuple[int, object]]] | None:
    """The records of the first partitions, once the leaders show so many; a new leader may show less."""
    found = [stored(client, topic, partition) for partition in range(BEFORE)]
    return found if sum(map(len, found)) >= count else None


def counts_of(cluster: Cluster, topic: str) -> set[object]:
    """How many partitions the topic has, as each broker knows it."""
    return {call(url, "GET", f"/v1/topics/{topic}").json.get("partitions") for url in cluster.urls}


# requirement: F4 K6 G11 G4
@pytest.mark.e2e
def test_a_topic_in_use_gets_more_partitions(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "A", BEFORE)
    with client.producer("A", linger="1ms") as producer:
        sent = [producer.send(f"old {number}", key=f"k{number}") for number in range(100)]
        assert {receipt.result().partition for receipt in sent} == {0, 1}
        old = eventually(lambda: all_stored(client, "A", 100), what="the old records in their partitions")
        with (
            Reading(client, "first", "A", "earliest") as a,
            Reading(client, "first", "A", "earliest") as b,
            Reading(client, "newest", "A", "latest") as late,
        ):
            first = {f"old {number}" for number in range(100)}
            eventually(lambda: a.values | b.values == first, what="the old records")
            eventually(lambda: late.partitions == {0, 1}, what="the partitions of the late group")
            eventually(  # nothing is promised before its first offsets are committed
                lambda: {each.partition for each in client.groups.offsets("newest")} == {0, 1},
                what="the first offsets of the late group",
            )
            _, errors = run(unbroken, "topic", "add-partitions", "A", "1", "--expected", "2")
            assert errors == ""
            eventually(lambda: counts_of(unbroken, "A") == {AFTER}, what="the new partition at all brokers")
            again = eventually(lambda: all_stored(client, "A", 100), what="the same number of old records")
            assert again == old, "no data migration"
            assert stored(client, "A", 2) == []
            client.send("A", "first", partition=2)  # perhaps before the groups know of it
            new: set[str] = set()

            def know_all() -> bool:
                """Whether both groups have the third partition; a record more is sent before each look."""
                value = f"new {len(new)}"
                producer.send(value, key=value).result()
                new.add(value)
                return a.partitions | b.partitions == late.partitions == {0, 1, 2}

            eventually(know_all, what="the new partition in both groups")
            more = [producer.send(f"even {number}", key=f"e{number}") for number in range(3_000)]
            counts = Counter(receipt.result().partition for receipt in more)
            expected = len(more) / AFTER
            assert set(counts) == {0, 1, 2}
            assert sum((counts[n] - expected) ** 2 / expected for n in counts) < CHI_SQUARE_MAX, counts
            new |= {"first", *(f"even {number}" for number in range(3_000))}
            eventually(
                lambda: a.values | b.values == first | new and late.values == new,
                what="all records in one group, and the new ones in the other, from the start of partition 2",
            )
            eventually(
                lambda: (
                    a.partitions | b.partitions == late.partitions == {0, 1, 2}
                    and a.partitions.isdisjoint(b.partitions)
                ),
                what="one owner in each group",
            )


# requirement: F4
@pytest.mark.e2e
def test_partitions_are_added_by_name_count_and_expectation(unbroken: Cluster, client: Client) -> None:
    create_topic(unbroken.urls[0], "B", 1, cleanup_policy="compact")
    output, errors = run(unbroken, "topic", "add-partitions", "B", "2", "--expected", "1", "-o", "json")
    assert json.loads(output)["partitions"] == 3
    assert "warning: topic B is compacted" in errors
    output, _ = run(unbroken, "topic", "add-partitions", "B", "2", "--expected", "1", "-o", "json")
    assert json.loads(output)["partitions"] == 3, "a repetition adds nothing"
    _, errors = run(unbroken, "topic", "add-partitions", "B", "1", "--expected", "1", code=1)
    assert "has 3 partitions, not 1" in errors
    eventually(lambda: counts_of(unbroken, "B") == {3}, what="three partitions at all brokers")
    assert client.topics.add_partitions("B", 1).partitions == 4
    _, errors = run(unbroken, "topic", "add-partitions", "B", "9999", code=1)
    assert "add 1 to 9996" in errors
    _, errors = run(unbroken, "topic", "add-partitions", "none", "1", code=1)
    assert "there is no topic 'none'" in errors
    eventually(lambda: counts_of(unbroken, "B") == {4}, what="four partitions at all brokers")
