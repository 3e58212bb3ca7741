"""A broker crashes after single disk operations of a round of compaction, by a kill or a power loss."""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import cache

import pytest

from chaos.corruption.case import _Case
from chaos.corruption.cluster import Filled, RottingCluster
from raftlog.errors import RaftlogError

KILL, POWER_LOSS = True, False
BATCHES = 40


@cache
def ready() -> Filled:
    """The disks of three brokers that were stopped before they compacted anything."""
    filled = Filled()
    rng = random.Random("ready to compact")

    async def work(cluster: RottingCluster) -> None:
        cluster.keys = filled.keys
        cluster.start_all()
        await cluster.create_topic()
        for _ in range(BATCHES):
            await cluster.produce(filled.acknowledged, rng)
        await cluster.stop_all()
        filled.images = {machine.node: machine.disk.image() for machine in cluster.machines}

    assert RottingCluster("ready to compact", {}, work).go() == []
    return filled


class _Crash(_Case):
    """One round on one broker, which crashes after so many changes of its disk."""

    def __init__(self, changes: int, *, is_killed: bool) -> None:
        super().__init__(changes, ready(), random.Random(changes), all_replicas=False)
        self.changes, self.is_killed = changes, is_killed
        self.is_over = False  # the round has come to its end before

    async def work(self, cluster: RottingCluster) -> None:
        cluster.start_all()
        await self._until_well(cluster)
        counted = cluster.machines[1]
        before = counted.disk.changes
        counted.disk.dies_after = before + self.changes
        counted.is_killed_in_a_change = self.is_killed
        with contextlib.suppress(RaftlogError):
            await counted.call(lambda broker: broker.compaction.look())
        self.is_over = counted.disk.dies_after is not None
        counted.disk.dies_after = None
        await asyncio.sleep(0.1)
        if not counted.is_up:
            counted.start()
        await self._until_well(cluster)
        await cluster.produce(self._acknowledged, self._rng)
        await self._until_well(cluster)
        await cluster.compact()
        await self._read_all(cluster)
        self._look_at_the_end(cluster)


def run_points(stride: int, *, is_killed: bool) -> int:
    """Every so many-th crash point; how many there are."""
    changes, is_over = 0, False
    while not is_over:
        crash = _Crash(changes, is_killed=is_killed)
        cluster = RottingCluster(f"crash {changes}", ready().images, crash.work)
        cluster.keys = crash.keys
        problems = cluster.go() + crash.problems
        assert not problems, f"after {changes} operations: {problems}"
        is_over = crash.is_over
        changes += stride
    return changes


@pytest.mark.parametrize("is_killed", [KILL, POWER_LOSS])
def test_a_crash_in_a_round_loses_nothing(is_killed: bool) -> None:
    assert run_points(11, is_killed=is_killed) > 50


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [KILL, POWER_LOSS])
def test_a_crash_after_any_operation_of_a_round_loses_nothing(is_killed: bool) -> None:
    assert run_points(1, is_killed=is_killed) > 50
