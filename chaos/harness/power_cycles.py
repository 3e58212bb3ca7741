"""Cuts the power of real brokers under load: ``python -m chaos.harness.power_cycles --cycles 200 --seed 7``.

There are three brokers, each with its data directory on a ``PowerDisk``. In each cycle one, two or all of
them lose their power at a random moment, sometimes once more while they recover; then they start again. At
the end the history of the clients is checked. The exit status is 0 if no record was lost and every broker
started, and 1 otherwise (the directory is kept). It is 2 if power losses do not work on this machine, or if
no power loss removed a byte from a log.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from chaos.checkers import Anomaly, check, count_lost
from chaos.cluster import Cluster
from chaos.cluster_view import ClusterFailed
from chaos.harness import power
from chaos.harness.power import PowerDisk
from chaos.history import History, Outcome
from chaos.history_files import write_history
from chaos.workload import Shape, Workload, WorkloadFailed
from raftlog.client import Client
from raftlog.testing.waits import LIMIT_S

TOPIC: Final = "power"
PARTITIONS: Final = 3
DISK_MB: Final = 256
READY_S: Final = LIMIT_S
"""The longest time from a power loss until a broker is ready. A broker that takes longer counts as unable to
start.
"""


@dataclass(slots=True)
class Tally:
    """The counts and anomalies of a test so far."""

    cycles: int = 0
    losses: int = 0  # power losses of single brokers
    bytes_lost: int = 0  # written but not synced
    unbootable: list[str] = field(default_factory=list)
    acknowledged: int = 0
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """The number of acknowledged values that are lost."""
        return count_lost(self.anomalies)

    @property
    def is_broken(self) -> bool:
        """Whether a guarantee was broken."""
        return bool(self.anomalies or self.unbootable)


class PoweredCluster:
    """Brokers whose data directories are on a ``PowerDisk`` each, during a ``with`` block."""

    def __init__(self, cluster: Cluster, size_mb: int = DISK_MB) -> None:
        self.cluster = cluster
        self._stack = ExitStack()
        self.disks = {
            broker: PowerDisk(cluster.data_directory(broker), size_mb) for broker in cluster.brokers
        }

    def lose_power(self, brokers: Sequence[int]) -> int:
        """Cut the power of these brokers at one moment, and restore their disks; return how many bytes of
        logs were lost.

        A broker's process is paused before its disk fails, so it does not run without its disk.
        """
        for broker in brokers:
            self.cluster.pause(broker)
        for broker in brokers:
            self.disks[broker].lose_power()
        for broker in brokers:
            self.cluster.kill(broker)
        return sum(
            size
            for broker in brokers
            for path, size in self.disks[broker].restore().items()
            if path.suffix == ".log"  # a lock file is never synced
        )

    def keep(self, directory: Path) -> None:
        """End all brokers and copy their data to ``directory``, because the disks are removed at the end of
        the ``with`` block.
        """
        for broker in self.cluster.running:
            self.cluster.kill(broker)
        for broker, disk in self.disks.items():
            shutil.copytree(disk.directory, directory / f"broker-{broker}")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for disk in self.disks.values():
                stack.enter_context(disk)
            stack.enter_context(self.cluster)  # the cluster ends before its disks
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(error_type, error, traceback)


def run(cycles: int, seed: int, directory: Path, say: Callable[[str], None]) -> tuple[Tally, History]:
    """Run cycles of power losses under load; ``say`` is called with one line for each cycle."""
    rng = random.Random(seed)
    tally = Tally()
    cluster = Cluster(directory / "cluster")
    shape = Shape(producers=8, pause_ms_max=10)
    load = Workload(cluster.urls, TOPIC, partitions=PARTITIONS, seed=seed, shape=shape)
    try:
        with PoweredCluster(cluster) as powered:
            create_topic(cluster, PARTITIONS)
            try:
                with load:
                    load.wait_for_acknowledged(50)
                    while tally.cycles < cycles and not tally.unbootable:
                        say(_cycle(powered, load, rng, tally))
            except WorkloadFailed as error:
                tally.unbootable.append(f"the final read failed: {error}")
            tally.anomalies = check(load.history)
            if tally.is_broken:
                powered.keep(directory / "kept")
    except ClusterFailed as error:  # a broker ended by itself
        tally.unbootable.append(str(error))
    tally.acknowledged = load.history.count(Outcome.ACKNOWLEDGED)
    return tally, load.history


def create_topic(cluster: Cluster, partitions: int) -> None:
    """Create a topic with a replica on every broker."""
    with Client(cluster.bootstrap) as client:
        client.topics.create(TOPIC, partitions=partitions, replication_factor=len(cluster.brokers))
    for partition in range(partitions):
        cluster.leader(TOPIC, partition)


def _cycle(powered: PoweredCluster, load: Workload, rng: random.Random, tally: Tally) -> str:
    """Run one cycle: cut the power of some brokers, often of all. In a quarter of the cycles, cut power a
    second time while brokers recover.
    """
    cluster = powered.cluster
    begun_s, before = time.monotonic(), tally.bytes_lost
    time.sleep(rng.uniform(0, 0.6))
    hit = rng.sample(cluster.brokers, rng.choice((1, 1, 2, 3, 3)))
    tally.bytes_lost += powered.lose_power(hit)
    tally.losses += len(hit)
    is_double = rng.random() < 0.25
    if is_double:
        for broker in hit:
            cluster.launch(broker)
        time.sleep(rng.uniform(0, 1.2))
        again = cluster.running if rng.random() < 0.5 else [*set(hit).intersection(cluster.running)]
        tally.bytes_lost += powered.lose_power(again)
        tally.losses += len(again)
    try:
        cluster.start(wait_s=READY_S)
        load.wait_for_acknowledged(20, within_s=READY_S)
    except (ClusterFailed, WorkloadFailed) as error:
        tally.unbootable.append(str(error))
    tally.cycles += 1
    return (
        f"cycle={tally.cycles} brokers={','.join(map(str, sorted(hit)))} twice={is_double} "
        f"bytes_lost={tally.bytes_lost - before} acknowledged={load.acknowledged} "
        f"seconds={time.monotonic() - begun_s:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m chaos.harness.power_cycles")
    parser.add_argument("--cycles", type=int, default=20, help="power losses under load (20)")
    parser.add_argument("--seed", type=int, default=None, help="of moments and brokers (random)")
    parser.add_argument("--directory", type=Path, help="for disks and logs, kept (a temporary one)")
    given = parser.parse_args(arguments)
    if reason := power.missing():
        sys.stderr.write(f"{reason}\n")
        return 2
    seed = given.seed if given.seed is not None else random.SystemRandom().getrandbits(32)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="raftlog-power-"))
    begun_s = time.monotonic()
    tally, history = run(given.cycles, seed, directory, _say)
    for problem in [*tally.unbootable, *map(str, tally.anomalies[:20])]:
        sys.stderr.write(f"{problem}\n")
    if given.directory is None and not tally.is_broken:
        shutil.rmtree(directory)
    else:
        write_history(directory / "history.jsonl", history)
        sys.stderr.write(f"history and logs are in {directory}\n")
    _say(
        f"cycles={tally.cycles} losses={tally.losses} acknowledged={tally.acknowledged} lost={tally.lost} "
        f"anomalies={len(tally.anomalies)} unbootable={len(tally.unbootable)} bytes_lost={tally.bytes_lost} "
        f"seconds={time.monotonic() - begun_s:.0f} seed={seed}"
    )
    if tally.is_broken:
        return 1
    return 0 if tally.bytes_lost else 2


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
