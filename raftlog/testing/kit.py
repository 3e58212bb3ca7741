"""The objects that tests use: one broker or three, with a clock that tests move and faults that they inject.

Tests get these objects from the pytest fixtures ``raftlog`` and ``raftlog_cluster``. Decides: the vocabulary.
Leaves to others: the brokers, which run in other processes (``raftlog.testing.supervisor``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final, TypeVar

from raftlog.client.blocking import Client
from raftlog.client.messages import Message
from raftlog.client.options import Duration, milliseconds, seconds
from raftlog.client.user_code import check_done, shown
from raftlog.errors import OffsetOutOfRange
from raftlog.testing import orders
from raftlog.testing.supervisor import KitFailed, Supervisor
from raftlog.testing.waits import LIMIT_S, describe_on_expiry, states

Found = TypeVar("Found")

POLL_S: Final = 0.01
POLL_MAX_S: Final = 0.1  # once a wait has taken a second: each check costs CPU
NAME_LENGTH_MAX: Final = 100  # of a topic, without its number
_topics = count(1)


class BrokerClock:
    """The time of all brokers of one cluster.

    Expiry follows this time; timeouts of requests follow real time.
    """

    def __init__(self, supervisor: Supervisor, cluster: int) -> None:
        self._supervisor = supervisor
        self._cluster = cluster
        self._shift_ms = 0
        self._passed_ms = 0

    def advance(self, by: Duration) -> None:
        """Let a time such as ``"30m"`` pass for the brokers.

        The brokers then do in the background the work that has become due.
        """
        by_ms = milliseconds("by", by)
        self._set(self._shift_ms + by_ms, self._passed_ms + by_ms)

    def reset(self) -> None:
        """Return to the time of this machine. Expired records and sessions stay expired."""
        if self._shift_ms:
            self._set(0, self._passed_ms)

    def time_ms(self) -> int:
        """The time of the brokers, in milliseconds since 1970."""
        return time.time_ns() // 1_000_000 + self._shift_ms

    def _set(self, shift_ms: int, passed_ms: int) -> None:
        self._supervisor.ask(orders.SetClock(self._cluster, shift_ms, passed_ms))
        self._shift_ms, self._passed_ms = shift_ms, passed_ms


class Raftlog:
    """A cluster for tests, by default of one broker. ``close`` deletes everything."""

    def __init__(self, supervisor: Supervisor, brokers: int = 1) -> None:
        made = supervisor.ask(orders.Create(brokers))
        self._supervisor = supervisor
        self._cluster = made.cluster
        self._client: Client | None = None
        self._test = "topic"
        self.urls = list(made.urls)
        self.clock = BrokerClock(supervisor, made.cluster)
        self._is_closed = False
        describe_on_expiry(self)

    @property
    def url(self) -> str:
        """The address of the first broker, for any client."""
        return self.urls[0]

    @property
    def client(self) -> Client:
        """The blocking client of this cluster, created at the first use."""
        if self._client is None:
            self._client = Client(self.urls)
        return self._client

    def begin_test(self, name: str) -> None:
        """From now on use the name of this test in the names of topics."""
        self._test = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:NAME_LENGTH_MAX].strip("-") or "topic"

    def topic(
        self, partitions: int = 1, *, replication_factor: int | None = None, **config: int | str
    ) -> str:
        """Create a topic for this test; return its name. ``retention_ms="7d"`` sets ``retention.ms``."""
        name = f"{self._test}-{next(_topics)}"
        named = {key.replace("_", "."): value for key, value in config.items()}
        copies = replication_factor or len(self.urls)
        self.client.topics.create(
            name, partitions=partitions, replication_factor=copies, config=named, exist_ok=True
        )
        self.wait_until(lambda: self._is_led(name, partitions), what=f"leaders for the partitions of {name}")
        return name

    def read_all(self, topic: str) -> list[Message]:
        """All messages of a topic, partition after partition."""
        numbers = range(len(self.client.topics.partitions(topic)))
        return [message for number in numbers for message in self._read_partition(topic, number)]

    def _read_partition(self, topic: str, number: int) -> list[Message]:
        partition = self.client.partition(topic, number)
        found: list[Message] = []
        offset, end = partition.offset_at("earliest"), partition.offset_at("latest")
        while offset < end:
            try:
                chunk = partition.read(offset)
            except OffsetOutOfRange:  # deleted meanwhile
                found.clear()
                offset = partition.offset_at("earliest")
                continue
            found += chunk.messages
            offset = chunk.next_offset
        return found

    def wait_until(
        self, holds: Callable[[], Found], within: Duration = f"{LIMIT_S:g}s", *, what: str = "the condition"
    ) -> Found:
        """Call ``holds`` until its result is true; return the result.

        Raises ``AssertionError`` after a time limit. Raises ``TypeError`` for a result such as a coroutine,
        which is always true.
        """
        began = time.monotonic()
        deadline = began + seconds("within", within)
        while not (found := _seen(holds)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {within}; last seen: {shown(found)}\n{states()}")
            time.sleep(min(max(POLL_S, 0.1 * (time.monotonic() - began)), POLL_MAX_S))
        return found

    def close(self) -> None:
        """End the brokers. Raises ``KitFailed`` if a broker has failed by itself."""
        self._is_closed = True
        if self._client is not None:
            self._client.close(0)
        self._supervisor.ask(orders.Destroy(self._cluster))

    def state(self) -> str:
        """The state of each broker as text: its process, its readiness, the end of its log, its stacks."""
        return "" if self._is_closed else self._supervisor.ask(orders.Describe(self._cluster)).text

    def _is_led(self, topic: str, partitions: int) -> bool:
        found = self.client.topics.partitions(topic)
        return len(found) == partitions and all(partition.leader for partition in found)


class RaftlogCluster(Raftlog):
    """Three brokers, numbered from 1, with calls that let them fail."""

    def __init__(self, supervisor: Supervisor, brokers: int = 3) -> None:
        super().__init__(supervisor, brokers)
        self.brokers = tuple(range(1, brokers + 1))

    def url_of(self, broker: int) -> str:
        """The address of one broker."""
        return self.urls[self._checked(broker) - 1]

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads a partition. Waits until there is a leader."""

        def found() -> int:
            return self.client.topics.partitions(topic)[partition].leader or 0

        return self.wait_until(found, what=f"a leader of {topic}/{partition}")

    def kill(self, broker: int) -> None:
        """Kill a broker as ``kill -9`` does: all data that it wrote stays, even unsynced data."""
        self._supervisor.ask(orders.Kill(self._cluster, self._checked(broker)))

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kill the broker that leads a partition; return its number."""
        return self._supervisor.ask(orders.KillLeader(self._cluster, topic, partition)).broker

    def lose_power(self, broker: int, *, seed: int = 0) -> None:
        """Kill a broker; ``seed`` decides which part of the unsynced writes the disk keeps."""
        self._supervisor.ask(orders.LosePower(self._cluster, self._checked(broker), seed))

    def start(self, *brokers: int) -> None:
        """Start stopped brokers (default: all of them) and wait until they are ready."""
        self._supervisor.ask(orders.Start(self._cluster, tuple(map(self._checked, brokers))))

    def slow_disk(self, broker: int, delay: Duration) -> None:
        """Delay each operation that waits for the broker's disk by ``delay``; ``0`` ends the delay."""
        delay_ms = milliseconds("delay", delay)
        self._supervisor.ask(orders.SlowDisk(self._cluster, self._checked(broker), delay_ms))

    @contextmanager
    def partition_network(self, *sides: Collection[int]) -> Iterator[None]:
        """Cut the network between brokers of different sides in this block. Clients reach all brokers."""
        checked = tuple(tuple(map(self._checked, side)) for side in sides)
        self._supervisor.ask(orders.Partition(self._cluster, checked))
        try:
            yield
        finally:
            self._supervisor.ask(orders.Partition(self._cluster, ()))

    def _checked(self, broker: int) -> int:
        if broker not in self.brokers:
            raise KitFailed(f"there is no broker {broker!r}; the brokers are {list(self.brokers)}")
        return broker


def _seen(holds: Callable[[], Found]) -> Found:
    found = holds()
    check_done("the condition", found)
    return found
