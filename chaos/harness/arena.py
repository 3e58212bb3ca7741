"""Gives faults access to the cluster under test and to all means (proxies, disks, namespaces) that can affect
it.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import msgspec

from chaos.cluster import Cluster
from chaos.cluster_view import ANSWER_S, ClusterFailed, ClusterView
from chaos.harness.links import Links
from chaos.harness.namespaces import Namespaces
from chaos.harness.power_cycles import PoweredCluster
from chaos.harness.shim.shim import Shim
from raftlog.testing.waits import LIMIT_S, states
from raftlog.wire import bodies, partitions, topics

POLL_S: Final = 0.5  # each look takes a dozen requests
SERVING: Final = 'raftlog_hosted_replicas{state="serving"}'
_BAD_STATES: Final = (
    "raftlog_failed_replicas",
    "raftlog_rejoining_replicas",
    "raftlog_repairs_running",
    'raftlog_hosted_replicas{state="opening"}',
)


Item = TypeVar("Item")


class NoTarget(Exception):
    """A fault has no possible target at the moment; the message says why."""


@dataclass(slots=True)
class Arena:
    """The cluster under test, and the means of faults to affect it. A means that this machine does not have
    is None or empty.
    """

    cluster: ClusterView
    topic: str = field(default_factory=lambda: f"chaos-{secrets.token_hex(4)}")
    links: Links | None = None
    network: Namespaces | None = None
    shims: Mapping[int, Shim] = field(default_factory=dict)
    powered: PoweredCluster | None = None
    replication: int = 3  # of the topic
    _held: set[int] = field(default_factory=set)
    _moving: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def processes(self) -> Cluster:
        """The cluster, if this process started its brokers."""
        assert isinstance(self.cluster, Cluster), "a fault that needs processes was begun without them"
        return self.cluster

    @contextmanager
    def hold(self, *brokers: int) -> Iterator[None]:
        """Reserve the processes of these brokers for one fault until the block ends. Raises ``NoTarget``."""
        with self._lock:
            if taken := self._held.intersection(brokers):
                raise NoTarget(f"another fault uses broker {min(taken)}")
            self._held.update(brokers)
        try:
            yield
        finally:
            with self._lock:
                self._held.difference_update(brokers)

    @contextmanager
    def hold_partition(self, draw: Draw) -> Iterator[bodies.PartitionDescription]:
        """Reserve a partition with all its replicas until the block ends: no other fault moves it. Raises
        ``NoTarget``.
        """
        whole = [
            row
            for row in self.partitions().values()
            if len(row.replicas) == self.replication and row.reassignment is None
        ]
        with self._lock:
            rows = [row for row in whole if row.partition not in self._moving]
            if not rows:
                raise NoTarget("no partition has all replicas and is not moved by another fault")
            row = draw.rng.choice(rows)
            self._moving.add(row.partition)
        try:
            yield row
        finally:
            with self._lock:
                self._moving.discard(row.partition)

    @property
    def free(self) -> list[int]:
        """Ids of the running brokers that no fault has reserved."""
        running = self.cluster.running
        with self._lock:
            return [broker for broker in running if broker not in self._held]

    @property
    def abandoned(self) -> list[int]:
        """Ids of brokers whose processes have ended although no fault has reserved them.

        Empty for a remote cluster.
        """
        if not isinstance(self.cluster, Cluster):
            return []
        with self._lock:  # no fault takes or releases a broker at the same time
            return [broker for broker in self.cluster.ended_processes if broker not in self._held]

    def bring_back(self, broker: int) -> None:
        """Start a broker again if the fault that has just ended has also ended the broker's process.

        Waits until the broker responds: a broker that was starting during the fault may still end.
        """
        deadline = time.monotonic() + LIMIT_S
        while broker in self.processes.running and time.monotonic() < deadline:
            if self.cluster.is_alive(broker):
                return
            time.sleep(POLL_S)
        if broker not in self.processes.running:
            self.processes.launch(broker)

    def partitions(self) -> dict[int, bodies.PartitionDescription]:
        """Return the state of all partitions, from the first broker that responds; empty if no broker
        responds.
        """
        rows = self._listed(partitions.LIST.at(topic=self.topic), bodies.PartitionDescription)
        return {row.partition: row for row in rows}

    def _listed(self, path: str, kind: type[Item]) -> list[Item]:
        """Return the first thousand items of a list, from the first broker that responds; empty if no broker
        responds.
        """
        for broker in self.free:
            try:
                found = self.cluster.get(f"{path}?limit=1000", broker=broker, answer_s=ANSWER_S)
                return msgspec.convert(found["items"], list[kind])  # type: ignore[valid-type]
            except (OSError, msgspec.MsgspecError):
                continue
        return []

    def unhealthy(self) -> str | None:
        """Return the first problem of the cluster as a text; None if the cluster is healthy.

        A disk may be lost only while no replica lacks records. Replicas of internal topics count, too: the
        replicas of a broker that has lost its disk open one after another.
        """
        rows = list(self.partitions().values())
        if not rows:
            return "no broker describes the partitions"
        if few := next((row for row in rows if len(row.replicas) < self.replication), None):
            return f"partition {few.partition} has the replicas {few.replicas} only"
        for topic in self._listed(topics.LIST.path, bodies.TopicDescription):
            if topic.internal:
                rows += self._listed(partitions.LIST.at(topic=topic.name), bodies.PartitionDescription)
        for row in rows:
            if (
                row.leader is None
                or row.reassignment
                or row.rejoining
                or set(row.in_sync) != set(row.replicas)
            ):
                return f"partition {row.partition}: {row.in_sync} of {row.replicas} are in sync"
        for broker in self.cluster.brokers:
            if broker not in self.free or not self.cluster.is_ready(broker):
                return f"broker {broker} is not ready"
            try:
                serving, *states = self.cluster.metrics(SERVING, *_BAD_STATES, broker=broker)
            except OSError as error:
                return f"broker {broker} does not respond: {error}"
            for name, number in zip(_BAD_STATES, states, strict=True):
                if number:
                    return f"{name} of broker {broker} is {number:g}"
            # A leader considers a replica that lost everything in sync until it hears from the replica.
            expected = sum(broker in row.replicas for row in rows)
            if serving < expected:
                return f"broker {broker} serves {serving:g} of {expected} replicas"
        return None

    def wait_healthy(self, within_s: float) -> None:
        """Return once the cluster is healthy. Raises ``ClusterFailed``."""
        deadline = time.monotonic() + within_s
        while (reason := self.unhealthy()) is not None:
            if time.monotonic() > deadline:
                raise ClusterFailed(f"not healthy after {within_s:g} s without faults: {reason}\n{states()}")
            time.sleep(POLL_S)


@dataclass(slots=True)
class Draw:
    """The random choices of one fault: drawn from the fault's seed, unless the scenario names a target."""

    arena: Arena
    seed: int
    target: str | None = None
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def broker(self, among: Callable[[], Sequence[int]] | None = None) -> int:
        """Return the broker that the scenario names, or a random running broker that no fault has reserved.

        Half of the random choices are among leaders. Raises ``NoTarget``.
        """
        free = self.arena.free if among is None else among()
        if not free:
            raise NoTarget("all running brokers are used by other faults")
        match (self.target or "").split():
            case ["broker", number]:
                return int(number)
            case ["leader"]:
                return self.rng.choice(self.leaders(free) or list(free))
        if self.rng.random() < 0.5 and (leading := self.leaders(free)):
            return self.rng.choice(leading)
        return self.rng.choice(list(free))

    def leaders(self, free: Sequence[int]) -> list[int]:
        """Return the brokers among ``free`` that lead a partition."""
        found = {row.leader for row in self.arena.partitions().values()}
        return sorted(broker for broker in found if broker is not None and broker in free)

    def some_brokers(self, count: int) -> list[int]:
        """Return ``count`` random brokers, running or not."""
        return sorted(self.rng.sample(self.arena.cluster.brokers, count))
