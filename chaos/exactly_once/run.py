"""Runs the copying: three brokers, copying processes, kills of both, and the verdict.

python -m chaos.exactly_once.run INPUTS [SEED]
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from chaos.at_rest import TIMEOUT_S, held_back, open_transactions, until_none
from chaos.cluster import Cluster
from chaos.consumer_groups.crowd import Crowd, Settings
from chaos.exactly_once.copies import GROUP, OUTPUTS, SOURCE, Input
from chaos.exactly_once.judge import Verdict, judged
from chaos.exactly_once.outputs import read_copies
from chaos.history import Look
from chaos.http_get import http_get
from raftlog import Client
from raftlog.testing.waits import LIMIT_S, eventually
from raftlog.wire import groups
from raftlog.wire.decoding import decoder_of
from raftlog.wire.groups import GroupOffsetList

SOURCE_PARTITIONS: Final = 12
OUTPUT_PARTITIONS: Final = 2
COPIERS: Final = (4, 4, 4)  # of each process
LIFE_S: Final = 30.0  # average of a copier

Body = TypeVar("Body", bound=msgspec.Struct)


class CopyingFailed(Exception):
    """The group made no progress, or a transaction stays open. The message says which of the two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The verdict and the counts of one run."""

    verdict: Verdict
    inputs: int
    seconds: float
    kills: dict[str, int]
    left_open: int  # open transactions at the end
    held_back: int  # partitions whose last stable offset is below the high watermark at the end


@dataclass(slots=True)
class _Killer:
    """Kills brokers and copying processes, one after another, and starts them again."""

    cluster: Cluster
    crowd: Crowd
    rng: random.Random
    pause_s: tuple[float, float]
    stopping: threading.Event = field(default_factory=threading.Event)
    kills: Counter[str] = field(default_factory=Counter)
    failure: BaseException | None = None

    def run(self) -> None:
        """Kill and restart brokers and processes until ``stopping`` is set. An error ends this, and is kept
        in ``failure``.
        """
        try:
            kinds = [self._kill_process, self._kill_broker]  # each kind at least once
            while not self.stopping.wait(self.rng.uniform(*self.pause_s)):
                kill = kinds.pop() if kinds else self.rng.choice((self._kill_process, self._kill_broker))
                kill()
        except BaseException as error:
            self.failure = error

    @property
    def has_killed_both(self) -> bool:
        """Whether at least one broker and at least one copying process were killed."""
        return len(self.kills) == 2

    def _kill_broker(self) -> None:
        broker = self.rng.choice(self.cluster.brokers)
        self.cluster.kill(broker)
        self.stopping.wait(self.rng.uniform(0, 3))
        self.cluster.start(broker)
        self.kills["brokers"] += 1

    def _kill_process(self) -> None:
        number = self.rng.randrange(len(self.crowd))
        self.crowd.kill(number)
        self.stopping.wait(self.rng.uniform(0, 3))
        self.crowd.start(number)
        self.kills["processes"] += 1


def copy_under_faults(
    inputs: int,
    seed: int,
    directory: Path,
    *,
    pause_s: tuple[float, float] = (2.0, 10.0),
    over_s: float = 0.0,
) -> Run:
    """Copy ``inputs`` records, with a kill after each pause. The records are produced over ``over_s``, or all
    at the beginning.

    Raises ``CopyingFailed`` and ``ClusterFailed``.
    """
    rng = random.Random(seed)
    began = time.monotonic()
    with Cluster(directory / "cluster") as cluster:
        with Client(cluster.bootstrap) as client:
            client.topics.create(SOURCE, partitions=SOURCE_PARTITIONS, replication_factor=3, exist_ok=True)
            for topic in OUTPUTS:
                client.topics.create(topic, partitions=OUTPUT_PARTITIONS, replication_factor=3, exist_ok=True)
        settings = Settings(
            urls=cluster.urls,
            group=GROUP,
            topic=SOURCE,
            name="",
            file="",
            seed=rng.getrandbits(32),
            members=0,
            life_s=LIFE_S,
            steady_at_s=0,
        )
        with Crowd(directory, settings, COPIERS, module="chaos.exactly_once") as crowd:
            killer = _Killer(cluster, crowd, rng, pause_s)
            thread = threading.Thread(target=killer.run, name="killer", daemon=True)
            thread.start()
            try:
                filled = _fill(cluster, inputs, over_s)
                _wait_until_copied(cluster, filled, killer)
            finally:
                killer.stopping.set()
                thread.join()
            if killer.failure is not None:
                raise killer.failure
            crowd.stop()
        left_open = until_none(lambda: open_transactions(cluster.urls[0]), LIMIT_S)
        waiting = until_none(lambda: _held_back(cluster), LIMIT_S)
        copies = read_copies(cluster.urls[0], OUTPUTS, OUTPUT_PARTITIONS)
        return Run(
            verdict=judged(copies, filled),
            inputs=inputs,
            seconds=round(time.monotonic() - began, 1),
            kills=dict(killer.kills),
            left_open=len(left_open),
            held_back=len(waiting),
        )


def _fill(cluster: Cluster, inputs: int, over_s: float) -> frozenset[Input]:
    """Produce the inputs; return the acknowledged records, which are all of them."""
    began = time.monotonic()
    sent = []
    with (
        Client(cluster.bootstrap) as client,
        client.producer(SOURCE, preset="throughput", delivery_timeout="120s") as producer,
    ):
        for number in range(inputs):
            sent.append(producer.send(str(number), partition=number % SOURCE_PARTITIONS))
            if over_s:
                time.sleep(max(0.0, began + over_s * number / inputs - time.monotonic()))
    receipts = (each.result() for each in sent)
    return frozenset(Input(receipt.partition, receipt.offset) for receipt in receipts)


def _wait_until_copied(cluster: Cluster, inputs: Set[Input], killer: _Killer) -> None:
    """Wait until the committed offsets of the group cover all inputs."""
    ends: dict[int, int] = {}
    for each in inputs:
        ends[each.partition] = max(ends.get(each.partition, 0), each.offset + 1)
    committed: dict[int, int] = {}

    def copied() -> int:
        nonlocal committed
        committed = _committed(cluster)
        return sum(min(committed.get(partition, 0), end) for partition, end in ends.items())

    try:
        eventually(
            lambda: killer.failure or (copied() >= sum(ends.values()) and killer.has_killed_both),
            what="all inputs are copied, and a broker and a process were killed",
            progress=lambda: (copied(), killer.kills.total()),
        )
    except AssertionError as error:
        raise CopyingFailed(f"the group has copied up to {committed} of {ends}: {error}") from error


def _committed(cluster: Cluster) -> dict[int, int]:
    """Return the committed offset of each partition; empty if no broker responds."""
    path = groups.OFFSETS.at(group=GROUP) + "?lag=false"
    for url in cluster.urls:
        try:
            items = _get(url + path, GroupOffsetList).items
        except OSError:
            continue
        return {row.partition: row.committed_offset for row in items}
    return {}


def _held_back(cluster: Cluster) -> list[Look]:
    """Return a look at each output partition in which a transaction holds readers back from the end."""
    return [look for topic in OUTPUTS for look in held_back(cluster.urls[0], topic, OUTPUT_PARTITIONS)]


def _get(url: str, kind: type[Body]) -> Body:
    return decoder_of(kind).decode(http_get(url, TIMEOUT_S)[0])


def main(arguments: Sequence[str]) -> int:
    """Run the copying. Return the exit status: 1 if records were lost or duplicated, or transactions torn or
    left open.
    """
    seed = int(arguments[1]) if len(arguments) > 1 else secrets.randbits(32)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="raftlog-exactly-once-") as name:
        run = copy_under_faults(int(arguments[0]), seed, Path(name))
    print(json.dumps(asdict(run)))
    return 0 if run.verdict.is_exactly_once and not run.left_open and not run.held_back else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
