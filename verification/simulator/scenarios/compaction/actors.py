"""Clients of a compacted topic with few keys: they overwrite and delete keys, and read from any offset on."""

from __future__ import annotations

from chaos.history import Outcome
from partitions.values import AppendReceipt
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import TopicPartition
from verification.simulator.clients import Client, Incarnation, Producer
from verification.simulator.scenarios.compaction.odds import LATEST, CompactedOdds
from verification.simulator.simulated_cluster import SimulatedCluster


class KeyWriter(Producer):
    """An idempotent producer that overwrites and deletes few keys."""

    def __init__(self, cluster: SimulatedCluster, name: str, partition: int, odds: CompactedOdds) -> None:
        super().__init__(cluster, name, partition, has_id=True)
        self._target = TopicPartition(LATEST, partition)
        self._keys_rng = cluster.rng(f"keys of {name}")
        self._keys = odds
        self._think_s = odds.think_s

    def _batch(self, values: list[str], incarnation: Incarnation, sequence: int) -> bytes:
        rng = self._keys_rng
        records = [
            Record(
                key=f"k{rng.randrange(self._keys.keys)}".encode(),
                value=None if rng.random() < self._keys.tombstones else value.encode(),
            )
            for value in values
        ]
        return build_batch(
            records,
            codec=Codec.NONE,
            timestamp_ms=1_700_000_000_000,
            producer_id=incarnation[0],
            producer_epoch=incarnation[1],
            base_sequence=sequence,
        )

    def _remember(
        self, process: int, values: list[str], invoked: float, outcome: Outcome, receipt: AppendReceipt | None
    ) -> None:
        """Record nothing: the committed log serves as history, because it has every acknowledged record
        (I19).
        """


class KeyReader(Client):
    """Reads one partition repeatedly, each time from a random offset on."""

    def __init__(self, cluster: SimulatedCluster, name: str, partition: int) -> None:
        super().__init__(cluster, name)
        self._target = TopicPartition(LATEST, partition)

    async def run(self) -> None:
        """Read until the run ends; every response is checked when the broker gives it."""
        position = 0
        while self.cluster.is_producing:
            await self.cluster.rest()
            try:
                result = await self.fetch(self._target, position, wait_ms=self.rng.choice((0, 100)))
            except OffsetOutOfRange as error:
                position = int(str(error.details["start"]))
            except RaftlogError:
                await self.pause()
            else:
                is_at_end = result.next_offset == position
                position = result.next_offset
                if is_at_end:
                    await self.pause()
                    position = self.rng.randrange(position + 1)
