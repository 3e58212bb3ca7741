"""Starts the systems of the suite, and runs the rounds of each row: the systems take turns."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from api.cli.closed_loop import Measured
from bench.ceiling import Ceiling
from bench.kafka import Kafka, KafkaCluster, fetch_jars
from bench.load import RETAINED_BYTES, Load, System, median, run
from bench.nats import BINARY, Nats
from bench.pysyncobj_log import PySyncObjLog
from bench.raftlog_system import RaftlogSystem

STREAMS = 4
KAFKA_WARM_UP_S = 45.0


@dataclass(slots=True)
class Bench:
    """One run of the suite."""

    directory: Path
    cache: Path
    images: Path
    rounds: int = 5
    seconds: float = 2.0  # of a round
    is_quick: bool = False
    raftlog: RaftlogSystem = field(init=False)
    ceiling: Ceiling = field(init=False)
    baseline: PySyncObjLog | None = None
    peers: dict[str, System] = field(default_factory=dict)

    async def start(self) -> None:
        """Start every system that can run here."""
        self.raftlog = RaftlogSystem(self.directory / "raftlog")
        await self.raftlog.start(STREAMS)
        self.ceiling = Ceiling(self.directory / "ceiling")
        await self.ceiling.start(STREAMS)
        if BINARY.exists():
            await self._add("nats_always", Nats(self.directory / "nats-always", sync_always=True))
            await self._add("nats", Nats(self.directory / "nats", sync_always=False))
        jars = None if self.is_quick else fetch_jars(self.cache)
        if jars is None:
            self.say("Kafka is left out" + ("" if self.is_quick else ": no Java, no Maven or no network"))
        else:
            cluster = KafkaCluster(self.directory / "kafka", jars)
            await self._add("kafka", Kafka(cluster, flush_always=False))
            await self._add("kafka_flush", Kafka(cluster, flush_always=True))
            self.say(f"Kafka warms up for {KAFKA_WARM_UP_S:.0f} s")
            for load in (_warm(100, 1024), _warm(1, 1024), _warm(400, 100)):
                await run(self.peers["kafka"], load)
        self.baseline = PySyncObjLog(self.directory / "pysyncobj")
        await self.baseline.start(1)

    @contextlib.asynccontextmanager
    async def brokers_alone(
        self, partitions: int = 1, retained_bytes: int = RETAINED_BYTES
    ) -> AsyncIterator[RaftlogSystem]:
        """Start three brokers of raftlog, without other systems, for the rows of one section."""
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="raftlog-") as directory:
            system = RaftlogSystem(Path(directory), retained_bytes=retained_bytes)
            try:
                await system.start(partitions)
                yield system
            finally:
                await system.stop()

    @contextlib.asynccontextmanager
    async def kafka_alone(self, what: str) -> AsyncIterator[KafkaCluster | None]:
        """Start a Kafka cluster for one row; None if Java or Maven is missing.

        ``what`` names the row in messages.
        """
        jars = None if self.is_quick else fetch_jars(self.cache)
        if jars is None:
            self.say(f"Kafka's {what} are left out" + ("" if self.is_quick else ": no Java, no Maven"))
            yield None
            return
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="kafka-") as directory:
            cluster = KafkaCluster(Path(directory), jars)
            try:
                await cluster.start()
                yield cluster
            finally:
                await cluster.stop()

    async def stop(self) -> None:
        """Stop every process that was started."""
        for system in (getattr(self, "raftlog", None), getattr(self, "ceiling", None), self.baseline):
            if system is not None:
                await system.stop()
        for peer in self.peers.values():
            await peer.stop()

    async def in_turn(self, systems: Sequence[System], load: Load) -> dict[str, Measured]:
        """Run rounds of a load, in the order A B C A B C … of systems; return each system's median."""

        async def one(system: System) -> Measured:
            return await run(system, load)

        return await self.rounds_of(systems, one)

    async def rounds_of(
        self, systems: Sequence[System], one: Callable[[System], Awaitable[Measured]]
    ) -> dict[str, Measured]:
        """Measure the systems in turn, in rounds; return the median of each system.

        A system that fails is omitted from then on, with a message.
        """
        found: dict[str, list[Measured]] = {system.name: [] for system in systems}
        running = list(systems)
        for number in range(self.rounds):
            for system in tuple(running):
                try:
                    found[system.name].append(await one(system))
                except (OSError, RuntimeError, TimeoutError) as error:
                    running.remove(system)
                    self.say(f"{system.name}, round {number + 1}: {type(error).__name__} {error}")
        return {name: median(rounds) for name, rounds in found.items() if rounds}

    def say(self, text: str) -> None:
        """Print progress."""
        sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        sys.stderr.flush()

    async def _add(self, key: str, system: System) -> None:
        self.peers[key] = system
        await system.start(STREAMS)


def _warm(records: int, record_bytes: int) -> Load:
    return Load(
        records=records,
        record_bytes=record_bytes,
        streams=STREAMS,
        in_flight=4,
        seconds=KAFKA_WARM_UP_S / 3,
    )
