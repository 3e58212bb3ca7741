"""A consumer group under faults: brokers are killed and cut off, members come, leave, vanish and are paused.

What all clients saw is recorded and checked (``chaos.consumer_groups``); the seed is printed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chaos.consumer_groups.checkers import check, deliveries
from chaos.consumer_groups.crowd import Crowd, Settings
from chaos.consumer_groups.history import (
    Acknowledged,
    GroupHistory,
    Recorder,
)
from chaos.consumer_groups.members import SESSION_MS
from chaos.consumer_groups.observer import Observer
from raftlog.testing.kit import RaftlogCluster
from tests.helpers.judged_load import SEED
from tests.helpers.real_cluster import call, eventually, produce_surely

GROUP = "crowd"
RECORDS_PER_SEND = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """How much of everything."""

    seconds: float
    processes: Sequence[int]  # members of each
    partitions: int
    life_s: float  # of a member, on average
    pause_s_max: float  # between two faults of one kind


@dataclass(slots=True)
class Load:
    """Threads that produce, look at the group, and make faults, until they are told to stop."""

    cluster: RaftlogCluster
    topic: str
    shape: Shape
    stopping: threading.Event = field(default_factory=threading.Event)
    ends: dict[int, int] = field(default_factory=dict)  # of what is acknowledged, by partition
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)

    @contextmanager
    def running(self, *works: Callable[[], None]) -> Iterator[None]:
        """Each on a thread of its own; the first error of one stops all and is raised."""
        threads = [threading.Thread(target=self._carried_out, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()
        if self.failures:
            raise self.failures[0]

    def _carried_out(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)
            self.stopping.set()

    def produce(self, recorder: Recorder) -> None:
        """Numbered values to each partition in turn, with retries until they are acknowledged."""
        number = 0
        while not self.stopping.is_set():
            partition = number % self.shape.partitions
            values = tuple(f"{number}.{n}" for n in range(RECORDS_PER_SEND))
            offset = produce_surely(self.cluster.urls, self.topic, values, partition=partition)
            recorder.add(Acknowledged(partition=partition, offset=offset, values=values))
            self.ends[partition] = max(self.ends.get(partition, 0), offset + len(values))
            number += 1
            self.stopping.wait(0.1)

    def trouble_brokers(self, rng: random.Random) -> None:
        """One broker after another is killed or cut off, and comes back."""
        turn = 0
        while not self.stopping.wait(rng.uniform(0.5, self.shape.pause_s_max)):
            broker = self.cluster.brokers[turn % len(self.cluster.brokers)]
            turn += 1
            if rng.random() < 0.5:
                self.faults["brokers killed"] += 1
                self.cluster.kill(broker)
                self.stopping.wait(rng.uniform(0, 5))
                self.cluster.start(broker)
            else:
                self.faults["brokers cut off"] += 1
                others = set(self.cluster.brokers) - {broker}
                with self.cluster.partition_network({broker}, others):
                    self.stopping.wait(rng.uniform(0.5, 8))

    def trouble_members(self, crowd: Crowd, rng: random.Random) -> None:
        """Processes with members are killed, or paused for less and for more than a session."""
        while not self.stopping.wait(rng.uniform(0.5, self.shape.pause_s_max)):
            number = rng.randrange(len(crowd))
            if rng.random() < 0.4:
                self.faults["processes killed"] += 1
                crowd.kill(number)
                self.stopping.wait(rng.uniform(0, 3))
                self._wait_for_members(crowd.start(number))
            else:
                self.faults["processes paused"] += 1
                crowd.pause(number)
                self.stopping.wait(rng.uniform(0.2, 2 * SESSION_MS / 1000))
                crowd.resume(number)

    def _wait_for_members(self, name: str) -> None:
        """Return once a member with such a name is in the group: a kill before that meets no member."""
        path = f"/v1/groups/{GROUP}"

        def has_joined() -> bool:
            members = call(self.cluster.url, "GET", path).rows("members")
            return self.stopping.is_set() or any(str(one["member_id"]).startswith(name) for one in members)

        eventually(has_joined, what=f"a member of process {name}")

    def wait_for_commits(self, observer: Observer) -> None:
        """Return once all that is acknowledged is committed by the group. Without progress this is a hang."""
        left: dict[int, tuple[int, int]] = {}

        def progress() -> object:
            """The progress of the group, without its generation."""
            return sorted(left.items())

        def is_done() -> bool:
            nonlocal left
            known = observer.committed()
            ends = self.ends.items()
            left = {number: (known.get(number, 0), end) for number, end in ends if known.get(number, 0) < end}
            return not left

        try:
            eventually(is_done, what="the group commits everything", progress=progress)
        except AssertionError as error:
            group = call(self.cluster.url, "GET", f"/v1/groups/{GROUP}")
            rebalances = call(self.cluster.url, "GET", f"/v1/groups/{GROUP}/rebalances")
            raise AssertionError(f"{error}: {left}\n{group.body!r}\n{rebalances.body!r}") from error


def under_faults(cluster: RaftlogCluster, directory: Path, shape: Shape) -> GroupHistory:
    """Run a crowd with faults, then without until it has committed everything; judge what was seen."""
    print(f"seed {SEED} (CHAOS_SEED)")
    rng = random.Random(SEED)
    topic = cluster.topic(shape.partitions)
    load = Load(cluster, topic, shape)
    settings = Settings(
        urls=cluster.urls,
        group=GROUP,
        topic=topic,
        name="",
        file="",
        seed=rng.getrandbits(32),
        members=0,
        life_s=shape.life_s,
        steady_at_s=time.monotonic() + shape.seconds,
    )
    rngs = [random.Random(rng.getrandbits(64)) for _ in range(3)]
    watching = Load(cluster, topic, shape)
    with (
        Recorder(directory / "producer.jsonl") as sent,
        Recorder(directory / "observer.jsonl") as seen,
        Crowd(directory, settings, shape.processes) as crowd,
        ExitStack() as stack,
    ):
        observer = Observer(cluster.urls, GROUP, seen, rngs[2])
        stack.enter_context(watching.running(lambda: observer.run(watching.stopping)))
        with load.running(
            lambda: load.produce(sent),
            lambda: load.trouble_brokers(rngs[0]),
            lambda: load.trouble_members(crowd, rngs[1]),
        ):
            load.stopping.wait(shape.seconds)
            if not load.stopping.is_set():
                eventually(
                    lambda: has_seen_enough(directory), what="an observer of three generations and of offsets"
                )
        began = time.monotonic()
        load.wait_for_commits(observer)
        drained_s = time.monotonic() - began
        crowd.stop()
    return judged(GroupHistory.read(directory), load, drained_s)


def has_seen_enough(directory: Path) -> bool:
    """Whether an observer and members have recorded what ``judged`` asks for."""
    history = GroupHistory.read(directory)
    generations = {each.generation for each in history.seen_generations}
    return len(generations) >= 3 and bool(history.committed and history.seen_offsets)


def judged(history: GroupHistory, load: Load, drained_s: float) -> GroupHistory:
    """No violation, and enough happened for this to mean something."""
    counted = deliveries(history)
    generations = {each.generation for each in history.seen_generations}
    members = {each.member for each in history.owned}
    print(
        f"{dict(load.faults)}; {len(members)} members in {max(generations)} generations; "
        f"{sum(len(each.values) for each in history.acknowledged)} records acknowledged, "
        f"{sum(counted.values())} deliveries, {sum(n > 1 for n in counted.values())} records more than once; "
        f"{len(history.committed)} commits of members; all committed {drained_s:.1f} s after the last fault"
    )
    violations = check(history)
    assert not violations, "\n".join(map(str, violations[:20]))
    assert len(generations) >= 3
    assert history.committed
    assert history.seen_offsets
    return history


@pytest.mark.e2e
def test_a_small_crowd_under_faults(raftlog_cluster: RaftlogCluster, tmp_path: Path) -> None:
    # requirement: G3 G4 ST2 D2
    shape = Shape(seconds=10, processes=(3, 3), partitions=12, life_s=8, pause_s_max=2)
    under_faults(raftlog_cluster, tmp_path, shape)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_members_under_faults_for_five_minutes(raftlog_cluster: RaftlogCluster, tmp_path: Path) -> None:
    # requirement: G3 G4 ST2 D2
    shape = Shape(seconds=300, processes=(10,) * 5, partitions=24, life_s=150, pause_s_max=10)
    under_faults(raftlog_cluster, tmp_path, shape)
