"""Fills the disks of a simulated cluster, in which nothing but disks fails.

Decides: the content of the disks before a case: several segments, terms and checkpoints, written and ended in
random ways; retention deletes the beginnings of some logs. Filling takes longer than a case, so many cases
use copies of the same filled disks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from broker.broker import Broker
from partitions.values import QUORUM
from raftlog.errors import RaftlogError, TopicExists
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import NodeId, TopicPartition
from verification.corruption import compacted
from verification.simulator.clients import TIMEOUT_MS, TOPIC
from verification.simulator.event_loop import Process
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.odds import CALM
from verification.simulator.simulation import Simulation

TARGET: Final = TopicPartition(TOPIC, 0)
BATCHES: Final = 40  # in each half of the filling
LONGEST_S: Final = 120.0
COMPACTED_FROM: Final = 1000  # the fillings from this number on are compacted

Image = dict[str, bytes]


@dataclass(slots=True)
class Filled:
    """The filled disks, copies from half-way through the filling, and the acknowledged values by offset."""

    images: dict[NodeId, Image] = field(default_factory=dict)
    older: dict[NodeId, Image] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    start: int = 0  # records below this offset are deleted
    keys: dict[int, bytes] = field(
        default_factory=dict
    )  # keys of acknowledged values, if the topic is compacted


class NoFaults(Faults):
    """Faults that never restart a machine."""

    def start_again(self) -> None:
        """Start nothing: a stopped machine stays off."""


class RottingCluster(Simulation):
    """A simulated cluster of three brokers with one partition. Subclasses define the run in ``work``."""

    def __init__(
        self, seed: str, disks: dict[NodeId, Image], work: Callable[[RottingCluster], Awaitable[None]]
    ) -> None:
        super().__init__(0, CALM, keeps_lines=False)
        self.name = seed
        self._work = work
        self.keys: dict[int, bytes] | None = None  # keys of acknowledged values, if the topic is compacted
        self.faults = NoFaults(self)
        self._values = 0
        self._key_rng = random.Random(f"{seed} keys")
        for machine in self.machines:
            machine.disk.load(disks.get(machine.node, {}))

    def rng(self, name: str) -> random.Random:
        """Return the stream of random numbers for one subsystem of this case."""
        return random.Random(f"{getattr(self, 'name', '')} {name}")

    def _wire(self) -> None:
        """Omit the checks of files and frames, because files are damaged on purpose."""

    def stepped(self, process: Process) -> None:
        """Do nothing: the steps of brokers are not checked here."""

    async def _live(self) -> None:
        await self._work(self)

    def go(self) -> list[str]:
        """Carry out the run; return descriptions of the violations."""
        logging.disable(logging.CRITICAL)
        try:
            self.loop.run(self._live(), LONGEST_S)
        except (TimeoutError, RuntimeError) as error:
            self.violated("L1 the run ends", repr(error))
        finally:
            self.loop.close()
            logging.disable(logging.NOTSET)
        return [f"{violation.invariant}: {violation.detail}" for violation in self.violations]

    # Phases of a run.

    def start_all(self) -> None:
        """Start the brokers of all machines."""
        for machine in self.machines:
            machine.start()

    async def stop_all(self) -> None:
        """Stop every broker cleanly."""
        for machine in self.machines:
            machine.stop()
        for machine in self.machines:
            while machine.is_up:  # noqa: ASYNC110 - a machine has no event for its end
                await asyncio.sleep(0.05)

    async def create_topic(self) -> None:
        """Create the topic, once the brokers accept requests."""
        while True:
            with contextlib.suppress(RaftlogError):
                try:
                    await self.machines[0].call(
                        lambda broker: broker.controller.create_topic(
                            TOPIC,
                            partitions=1,
                            replication_factor=len(self.machines),
                            config={
                                "segment.bytes": CALM.segment_bytes,
                                **({} if self.keys is None else compacted.CONFIG),
                            },
                            timeout_ms=TIMEOUT_MS,
                        )
                    )
                except TopicExists:
                    return
                return
            await asyncio.sleep(0.1)

    async def produce(self, acknowledged: dict[int, bytes], rng: random.Random) -> None:
        """Produce one batch through any broker; retry until it is acknowledged."""
        values = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            self._values += 1
            values.append(f"{self.name}-{self._values}-".encode() + rng.randbytes(rng.choice((8, 40, 150))))
        keys = self._draw_keys(len(values))
        records = [Record(value=value, key=key) for value, key in zip(values, keys, strict=True)]
        data = build_batch(records, codec=Codec.NONE, timestamp_ms=1_700_000_000_000)
        while True:
            machine = rng.choice(self.machines)
            try:
                receipt = await machine.call(
                    lambda broker: broker.gateway.append(TARGET, data, acks=QUORUM, timeout_ms=TIMEOUT_MS)
                )
            except RaftlogError:
                await asyncio.sleep(0.1)
                continue
            for number, value in enumerate(values):
                acknowledged[receipt.base_offset + number] = value
                if self.keys is not None:
                    self.keys[receipt.base_offset + number] = keys[number] or b""
            return

    def _draw_keys(self, count: int) -> list[bytes | None]:
        if self.keys is None:
            return [None] * count
        return [b"%d" % self._key_rng.randrange(compacted.KEYS) for _ in range(count)]

    async def compact(self) -> None:
        """Run a round of compaction on every running machine."""
        for machine in self.machines:
            if machine.broker is not None:
                await machine.call(lambda broker: broker.compaction.look())

    async def cut(self, acknowledged: dict[int, bytes]) -> int:
        """Delete the older half of the log on every running machine; return the new log start offset."""
        while True:
            await asyncio.sleep(0.1)
            leader = self._leader()
            if leader is None:
                continue
            try:
                await leader.call(_keep_half)
                await leader.call(lambda broker: broker.retention.look())
            except RaftlogError:
                continue
            starts = {start for machine in self.machines if (start := _log_start(machine)) is not None}
            if len(starts) == 1 and min(starts) > min(acknowledged):
                break
        await leader.call(_keep_all)
        (start,) = starts
        for offset in [offset for offset in acknowledged if offset < start]:
            del acknowledged[offset]
        return start

    def _leader(self) -> Machine | None:
        for machine in self.machines:
            broker = machine.broker
            replica = None if broker is None else broker.manager.replicas.get((TOPIC, 0))
            if replica is not None and replica.group.is_ready:
                return machine
        return None

    async def depose(self) -> None:
        """Make the partition's Raft group elect a leader for another term."""
        for machine in self.machines:
            broker = machine.broker
            replica = None if broker is None else broker.manager.replicas.get((TOPIC, 0))
            if replica is not None and replica.group.is_leader:
                others = [other.node for other in self.machines if other is not machine]
                replica.group.transfer_leadership(others[0])
        await asyncio.sleep(0.5)


def is_cut(filling: int) -> bool:
    """True if a filling with this seed deletes the beginnings of the logs."""
    return filling % 3 == 2 and not is_compacted(filling)


def is_compacted(filling: int) -> bool:
    """True if a filling with this seed compacts its logs."""
    return filling >= COMPACTED_FROM


async def _keep_half(broker: Broker) -> None:
    size = broker.manager.replicas[TOPIC, 0].group.log.size_bytes
    await _alter(broker, {"retention.bytes": size // 2})


async def _keep_all(broker: Broker) -> None:
    await _alter(broker, {"retention.bytes": None})


async def _alter(broker: Broker, changes: dict[str, int | str | None]) -> None:
    await broker.controller.alter_config(TOPIC, changes, expected_version=None, timeout_ms=TIMEOUT_MS)


def _log_start(machine: Machine) -> int | None:
    broker = machine.broker
    replica = None if broker is None else broker.manager.replicas.get((TOPIC, 0))
    return None if replica is None else replica.group.log.first_index


def fill(seed: int) -> Filled:
    """Fill the disks with several segments, terms and checkpoints; the seed determines the content."""
    filled = Filled()
    rng = random.Random(f"filling {seed}")
    end: str = rng.choice(("stop", "kill", "lose power"))

    async def work(cluster: RottingCluster) -> None:
        cluster.keys = filled.keys if is_compacted(seed) else None
        cluster.start_all()
        await cluster.create_topic()
        await _half(cluster, filled, rng)
        if is_compacted(seed) and rng.random() < 0.5:
            await cluster.compact()
        await cluster.stop_all()
        filled.older = {machine.node: machine.disk.image() for machine in cluster.machines}
        cluster.start_all()
        await _half(cluster, filled, rng)
        if is_compacted(seed):
            await cluster.compact()
            await cluster.produce(filled.acknowledged, rng)
        elif is_cut(seed):
            filled.start = await cluster.cut(filled.acknowledged)
        await asyncio.sleep(rng.choice((0.0, 2.0)))
        if end == "stop":
            await cluster.stop_all()
        for machine in cluster.machines:
            (machine.lose_power if end == "lose power" else machine.kill)()
            filled.images[machine.node] = machine.disk.image()

    troubles = RottingCluster(f"filling {seed}", {}, work).go()
    assert not troubles, troubles
    return filled


async def _half(cluster: RottingCluster, filled: Filled, rng: random.Random) -> None:
    for number in range(BATCHES):
        await cluster.produce(filled.acknowledged, rng)
        if number in (BATCHES // 3, BATCHES // 2) and rng.random() < 0.7:
            await cluster.depose()
