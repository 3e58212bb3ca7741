"""A broker crashes after single disk operations of a round of compaction, by a kill or a power loss."""

from __future__ import annotations

import asyncio
import contextlib
import random
from functools import cache

import pytest

from broker.broker import Broker
from partitions.values import QUORUM
from raftlog.errors import RaftlogError
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch, with_producer
from transactions.records import Handle
from transactions.requests import End, Open, Opened
from verification.corruption.case import _Case
from verification.corruption.cluster import TARGET, Filled, RottingCluster
from verification.simulator.clients import TIMEOUT_MS

KILL, POWER_LOSS = True, False
BATCHES = 40
TRANSACTIONS = 6
ABORTED = b"aborted"


@cache
def ready() -> Filled:
    """The disks of three brokers that were stopped before they compacted anything."""
    filled = Filled()
    rng = random.Random("ready to compact")

    async def work(cluster: RottingCluster) -> None:
        cluster.keys = filled.keys
        cluster.start_all()
        await cluster.create_topic()
        for number in range(TRANSACTIONS):
            await transaction(cluster, filled, number, is_commit=number % 2 == 0)
        for _ in range(BATCHES):
            await cluster.produce(filled.acknowledged, rng)
        await cluster.stop_all()
        filled.images = {machine.node: machine.disk.image() for machine in cluster.machines}

    assert RottingCluster("ready to compact", {}, work).go() == []
    return filled


async def transaction(cluster: RottingCluster, filled: Filled, number: int, *, is_commit: bool) -> None:
    """Two records with keys that all transactions have; one batch each. The last one is aborted."""
    name = f"copy-{number}"

    async def run(broker: Broker) -> dict[int, bytes]:
        service, written = broker.transactions.service, dict[int, bytes]()
        opened = await service.ask(Open(transactional_id=name, timeout_ms=60_000), timeout_ms=TIMEOUT_MS)
        assert isinstance(opened, Opened)
        for sequence in range(2):
            value = b"%s in %s" % (b"committed" if is_commit else ABORTED, name.encode())
            data = build_batch([Record(value, b"t%d" % sequence)], codec=Codec.NONE, timestamp_ms=0)
            body = with_producer(data, opened.producer_id, opened.epoch, sequence, in_transaction=True)
            receipt = await broker.gateway.append(
                TARGET, body, acks=QUORUM, timeout_ms=TIMEOUT_MS, transactional_id=name
            )
            written[receipt.base_offset] = value
        handle = Handle(name, opened.producer_id, opened.epoch)
        await service.ask(End(transaction=handle, is_commit=is_commit), timeout_ms=TIMEOUT_MS)
        return written

    written: dict[int, bytes] = {}
    while not written:
        try:
            written = await cluster.machines[0].call(run)
        except RaftlogError:
            await asyncio.sleep(0.1)
    if is_commit:
        filled.acknowledged |= written
        filled.keys |= {offset: b"t%d" % at for at, offset in enumerate(sorted(written))}


class _Crash(_Case):
    """One round on one broker, which crashes after so many changes of its disk."""

    def __init__(self, changes: int, *, is_killed: bool) -> None:
        super().__init__(changes, ready(), random.Random(changes), all_replicas=False)
        self.changes, self.is_killed = changes, is_killed
        self.is_over = False  # the round has come to its end before

    def _check_served(self, data: bytes, found: dict[int, bytes]) -> None:
        super()._check_served(data, found)
        if any(value.startswith(ABORTED) for value in found.values()):
            self._served("a record of an aborted transaction")

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
