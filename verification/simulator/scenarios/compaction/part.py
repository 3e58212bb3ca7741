"""The compacted topic of a run, and the checks of the records that readers get at the end."""

from __future__ import annotations

import random
from typing import Final

from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import StoredRecord
from raftlog.types import TopicPartition
from verification.simulator.clients import Client
from verification.simulator.faults import Faults
from verification.simulator.originals import stored_records
from verification.simulator.part import Actor, Config, Part, Topic
from verification.simulator.records import GroupRecord
from verification.simulator.scenarios.compaction.actors import KeyReader, KeyWriter
from verification.simulator.scenarios.compaction.odds import LATEST, CompactedOdds
from verification.simulator.simulated_cluster import SimulatedCluster

SEEN: Final = "I34 readers see the newest record of each key"
WORKS: Final = "L2 a healed cluster works"
RECOVERY_S: Final = 20.0
READS_MAX: Final = 3  # what compaction removes during a read is not there in the next one
STARTS: Final = 4  # of the final reads, besides the beginning


class CompactedTopic(Part):
    """The compacted topic of a run: its clients, and the checks at the end."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: CompactedOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._client = Client(cluster, "finisher of keys")

    def topics(self, config: Config) -> list[Topic]:
        """Return the compacted topic."""
        return [Topic(LATEST, self._odds.partitions, self._odds.topic_config)]

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """Return a random partition, mostly of the compacted topic."""
        return (LATEST, self._odds.partitions) if rng.random() < 0.7 else None

    def actors(self) -> list[Actor]:
        """Return the writers and readers of the topic."""
        cluster, odds = self._cluster, self._odds
        writers = [
            KeyWriter(cluster, f"w{number}", number % odds.partitions, odds) for number in range(odds.writers)
        ]
        readers = [
            KeyReader(cluster, f"k{number}", number % odds.partitions) for number in range(odds.readers)
        ]
        return [*writers, *readers]

    async def actors_ended(self) -> None:
        """Check that every partition accepts one more record in time (L2). Its key is new, so that the log
        has a new end that compaction keeps.
        """
        for partition in range(self._odds.partitions):
            target = TopicPartition(LATEST, partition)
            data = build_batch([Record(key=b"last", value=b"1")], codec=Codec.NONE, timestamp_ms=0)
            deadline = self._cluster.loop.now + RECOVERY_S
            while True:
                try:
                    await self._client.append(self._client.machine(), target, data)
                    break
                except RaftlogError as error:
                    if self._cluster.loop.now > deadline:
                        self._cluster.violated(WORKS, f"{target} accepts no record: {error!r}")
                        return
                    await self._client.pause()

    async def check(self) -> dict[str, int]:
        """Check the records that readers get from the beginning, and from some other offsets on (I34)."""
        for partition in range(self._odds.partitions):
            record = self._record(partition)
            end = record.committed[-1].last + 1
            rng = self._client.rng
            for start in (0, *(rng.randrange(end) for _ in range(STARTS))):
                await self._read_from(record, TopicPartition(LATEST, partition), start)
        return {}

    async def _read_from(self, record: GroupRecord, target: TopicPartition, start: int) -> None:
        problem: str | None = None
        for _ in range(READS_MAX):
            start, seen = await self._seen_from(target, start)
            problem = _problem(record, start, seen)
            if problem is None:
                return
        self._cluster.violated(SEEN, f"{target} from {start} on: {problem}")

    async def _seen_from(
        self, target: TopicPartition, start: int
    ) -> tuple[int, dict[bytes | None, StoredRecord]]:
        """Read a partition from an offset on; return the first offset that was read, and the last record of
        each key.
        """
        position, failures = start, 0
        seen: dict[bytes | None, StoredRecord] = {}
        while True:
            try:
                result = await self._client.fetch(target, position, wait_ms=0)
            except OffsetOutOfRange as error:
                start = position = int(str(error.details["start"]))
                continue
            except RaftlogError as error:
                failures += 1
                if failures > 20:
                    self._cluster.violated(WORKS, f"{target} is not read: {error!r}")
                    return start, seen
                await self._client.pause()
                continue
            for batch in split_batches(result.data):
                seen |= {one.key: one for one in stored_records(batch) if one.offset >= start}
            if result.next_offset == position:
                return start, seen
            position = result.next_offset

    def _record(self, partition: int) -> GroupRecord:
        image = next(one.broker.controller.image for one in self._cluster.machines if one.broker is not None)
        return self._cluster.checker.groups[image.topics[LATEST].partitions[partition].group_id]


def _problem(record: GroupRecord, start: int, seen: dict[bytes | None, StoredRecord]) -> str | None:
    assert record.originals is not None
    newest = record.originals.newest(record.committed)
    for key, wanted in newest.items():
        found = seen.get(key)
        if found != wanted and wanted.offset >= start and (wanted.value is not None or found is not None):
            return f"of {key!r} it sees {found}, the newest is {wanted}"
    return None
