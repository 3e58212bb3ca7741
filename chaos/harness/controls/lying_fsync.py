"""Runs brokers on disks whose sync lies: a power loss of all disks loses acknowledged records.

With ``is_honest`` the syncs are real, and the checkers must find nothing. This shows that the lie is the
cause of the lost records, and not the harness.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Final

from chaos.checkers import check, count_lost
from chaos.cluster import Cluster
from chaos.harness import power
from chaos.harness.controls import ControlResult
from chaos.harness.power_cycles import TOPIC, PoweredCluster, create_topic
from chaos.harness.shim import shim as shims
from chaos.harness.shim.shim import Shim
from chaos.history import Outcome
from chaos.workload import Shape, Workload, WorkloadFailed

NAME: Final = "lying fsync"
FINAL_READ_S: Final = 15.0
"""The longest time for a read up to the highest acknowledged offset, when the brokers are ready and idle."""


def missing() -> str | None:
    """Return the reason why this control cannot run on this machine, and the remedy; None if it can run."""
    return power.missing() or shims.missing()


def run(seed: int, directory: Path, *, is_honest: bool = False) -> ControlResult:
    """Run the control: cut the power of all brokers under load, and check the history.

    The power is cut within seconds, because the kernel writes old pages to the disk by itself.
    """
    rng = random.Random(seed)
    cluster = Cluster(directory / "cluster")
    lying = {broker: Shim(cluster.data_directory(broker)) for broker in cluster.brokers}
    for broker, shim in lying.items():
        cluster.add_environment(broker, shim.environment)
    shape = Shape(producers=4, final_read_s=FINAL_READ_S)
    with PoweredCluster(cluster) as powered:
        create_topic(cluster, 1)
        load = Workload(cluster.urls, TOPIC, partitions=1, seed=seed, shape=shape)
        load.start()
        load.wait_for_acknowledged(20)
        for disk in powered.disks.values():
            disk.sync()  # only records that are acknowledged from now on can be lost
        for shim in lying.values():
            shim.lying_sync(not is_honest)
        load.wait_for_acknowledged(rng.randint(20, 200))
        time.sleep(rng.uniform(0, 0.3))
        bytes_lost = powered.lose_power(cluster.brokers)
        for shim in lying.values():
            shim.heal()
        cluster.start()
        cluster.leader(TOPIC, 0)
        cut_short = _stop(load)
        lies = sum(shim.effects()["lied_syncs"] for shim in lying.values())
    lost = count_lost(check(load.history))
    return ControlResult(
        name=NAME,
        is_guilty=bool(lost and load.history.final),  # a final read without any response proves nothing
        lost=lost,
        acknowledged=load.history.count(Outcome.ACKNOWLEDGED),
        detail=f"{lies} syncs without effect, {bytes_lost} bytes of logs lost{cut_short}",
    )


def _stop(load: Workload) -> str:
    """Stop the load; return the error of its final read, empty if there was none.

    The expected result is that acknowledged offsets are lost, which ends the final read early.
    """
    try:
        load.stop()
    except WorkloadFailed as error:
        return f"; {error}"
    return ""
