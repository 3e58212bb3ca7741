"""Runs the brokers of the testing kit in one process, which reads orders from its input and writes outcomes
to its output.

The process ends, with all brokers and their files, when its standard input ends.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, assert_never

import msgspec
from msgspec.structs import replace

from broker.cluster_files import settings_path
from broker.settings import Timing, load_settings
from chaos.broker_process import BrokerProcess
from chaos.cluster import Cluster
from chaos.cluster_view import ClusterFailed
from chaos.kit.forked_broker import Faults, ForkedBroker
from raftlog.testing import orders

ALONE: Final = Timing(
    tick_ms=5,
    heartbeat_ticks=1,
    election_ticks=3,
    retention_check_interval_ms=100,
    clock_jump_ms_max=1 << 50,  # a clock that a test moves counts as correct
)
"""Timing of a broker without peers, which elects itself at once."""
TOGETHER: Final = ALONE.model_copy(update={"tick_ms": 20, "heartbeat_ticks": 3, "election_ticks": 15})
"""Timing of several brokers: slow enough for a machine with fewer cores than brokers."""


class KitCluster(Cluster):
    """Brokers that are forks of this process, with faults that tests request."""

    def __init__(self, brokers: int) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="raftlog-testing-")), brokers=brokers)
        timing = ALONE if brokers == 1 else TOGETHER
        self._settings = {
            broker: load_settings(settings_path(self.directory, broker)).model_copy(update={"timing": timing})
            for broker in self.brokers
        }
        self._faults = dict.fromkeys(self.brokers, Faults())
        self._forks: dict[int, ForkedBroker] = {}

    def lose_power(self, broker: int, seed: int) -> None:
        """Cut the power of a broker; return when its process has ended."""
        if broker not in self.running:
            raise ClusterFailed(f"broker {broker} is not running")
        self._killed.add(self._forks[broker].pid)
        self._forks[broker].lose_power(seed)

    def kill_leader(self, topic: str, partition: int) -> int:
        """Kill the leader of a partition; return the id of the killed broker."""
        leader = self.leader(topic, partition)
        self.kill(leader)
        return leader

    def set_clock(self, shift_ms: int, passed_ms: int) -> None:
        """Set the clocks of all brokers, including brokers that start later."""
        for broker, faults in self._faults.items():
            self._set(broker, replace(faults, shift_ms=shift_ms, passed_ms=passed_ms))

    def slow_disk(self, broker: int, delay_ms: int) -> None:
        """Delay the disk of one broker, also after its next start."""
        self._set(broker, replace(self._faults[broker], disk_delay_ms=delay_ms))

    def partition(self, sides: Sequence[Collection[int]]) -> None:
        """Cut the links between brokers of different sides; a broker that is on no side keeps all its
        links.
        """
        for broker, faults in self._faults.items():
            own = [side for side in sides if broker in side]
            cut = tuple(peer for side in sides if own and side not in own for peer in side)
            self._set(broker, replace(faults, cut=cut))

    def destroy(self) -> list[str]:
        """End all brokers and delete their files; return their unexpected exits and tracebacks."""
        found = self.broken()
        for broker in self.running:
            self.kill(broker)
        shutil.rmtree(self.directory)
        return found

    def _set(self, broker: int, faults: Faults) -> None:
        self._faults[broker] = faults
        if broker in self.running:
            self._forks[broker].set_faults(faults)

    def _new_process(self, broker: int, environment: Mapping[str, str]) -> BrokerProcess:
        fork = ForkedBroker(self._settings[broker], self._log_path(broker), self._faults[broker])
        self._forks[broker] = fork
        return fork


class Supervisor:
    """All clusters of one test session, and the orders that change them."""

    def __init__(self) -> None:
        self._clusters: dict[int, KitCluster] = {}
        self._made = 0

    def outcome(self, order: orders.Order) -> orders.Outcome:
        """Carry out one order; return its outcome."""
        try:
            return self._done(order)
        except (ClusterFailed, OSError, subprocess.SubprocessError) as error:
            return orders.Failed(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """End the brokers of all clusters."""
        for cluster in self._clusters.values():
            cluster.destroy()

    def _done(self, order: orders.Order) -> orders.Outcome:
        if isinstance(order, orders.Create):
            return self._create(order.brokers)
        cluster = self._clusters[order.cluster]
        match order:
            case orders.Destroy():
                del self._clusters[order.cluster]
                if broken := cluster.destroy():
                    return orders.Failed("\n".join(broken))
            case orders.Start(brokers=brokers):
                cluster.start(*brokers)
            case orders.Kill(broker=broker):
                cluster.kill(broker)
            case orders.KillLeader(topic=topic, partition=partition):
                return orders.Done(broker=cluster.kill_leader(topic, partition))
            case orders.LosePower(broker=broker, seed=seed):
                cluster.lose_power(broker, seed)
            case orders.SetClock(shift_ms=shift_ms, passed_ms=passed_ms):
                cluster.set_clock(shift_ms, passed_ms)
            case orders.SlowDisk(broker=broker, delay_ms=delay_ms):
                cluster.slow_disk(broker, delay_ms)
            case orders.Describe():
                return orders.Done(text=cluster.state())
            case orders.Partition(sides=sides):
                cluster.partition(sides)
            case _:
                assert_never(order)
        return orders.Done()

    def _create(self, brokers: int) -> orders.Outcome:
        self._made += 1
        cluster = self._clusters[self._made] = KitCluster(brokers)
        cluster.start()
        return orders.Done(cluster=self._made, urls=tuple(cluster.urls))


def main() -> None:
    """Carry out orders until the standard input ends."""
    for name in [name for name in os.environ if name.upper().startswith("RAFTLOG_")]:
        del os.environ[name]  # settings of other brokers
    gc.enable()
    gc.freeze()  # forks share the imported modules
    supervisor, decoder = Supervisor(), msgspec.json.Decoder(orders.Order)
    try:
        for line in sys.stdin.buffer:
            answer = msgspec.json.encode(supervisor.outcome(decoder.decode(line)))
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()
    finally:
        supervisor.close()
