"""Readers of partitions that take part in transactions, for both isolation levels."""

from __future__ import annotations

from functools import partial
from typing import Final

from partitions.values import FetchRequest, FetchResult
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.batch import split_batches
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition
from transactions.records import Participant
from verification.simulator.clients import Client
from verification.simulator.scenarios.transactions.clients import Story
from verification.simulator.scenarios.transactions.judge import STABLE, VISIBLE
from verification.simulator.simulated_cluster import SimulatedCluster

JUMP_ODDS: Final = 0.3  # at the end: to any earlier offset


class TransactionReader(Client):
    """Reads one partition repeatedly, each time from its start on."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, story: Story, target: Participant, *, committed: bool
    ) -> None:
        super().__init__(cluster, name)
        self.story = story
        self._target = TopicPartition(*target)
        self._committed_only = committed
        self._stable: dict[int, int] = {}  # the last stable offset, by leader epoch

    async def run(self) -> None:
        """Read until the run ends."""
        position, seen = 0, dict[str, int]()
        while self.cluster.is_producing:
            await self.cluster.rest()
            try:
                result = await self.read(position, wait_ms=self.rng.choice((0, 100, 400)))
            except OffsetOutOfRange as error:
                position = self._restart(position, error)
            except RaftlogError:
                await self.pause()
            else:
                is_at_end = result.next_offset == position
                self.collect(position, result, seen)
                position = result.next_offset
                if is_at_end:
                    await self.pause()
                    if self.rng.random() < JUMP_ODDS:
                        position, seen = self.rng.randrange(position + 1), {}

    async def everything(self) -> tuple[int, dict[str, int], FetchResult]:
        """Read the whole log; return its start, the offset of each value, and the last answer. Raises
        ``RaftlogError``.
        """
        start, failures, seen = 0, 0, dict[str, int]()
        position = 0
        while True:
            try:
                result = await self.read(position, wait_ms=0)
            except OffsetOutOfRange as error:
                start = position = self._restart(position, error)
                seen.clear()
                continue
            except RaftlogError:
                failures += 1
                if failures > 20:
                    raise
                await self.pause()
                continue
            self.collect(position, result, seen)
            if result.next_offset == position:
                return start, seen, result
            position = result.next_offset

    async def read(self, position: int, *, wait_ms: int) -> FetchResult:
        """Read once through any broker; the answer is checked when the broker gives it."""
        request = FetchRequest(
            position=Offset(position), bytes_max=4096, wait_ms=wait_ms, committed_only=self._committed_only
        )
        result: FetchResult = await self.ask(
            self.machine(),
            lambda broker: broker.gateway.fetch(self._target, request),
            partial(self.story.judge.read, self._target, self._committed_only),
        )
        before = self._stable.get(result.leader_epoch, 0)
        if result.last_stable_offset < before:
            detail = f"{result.last_stable_offset} after {before} in epoch {result.leader_epoch}"
            self.cluster.violated(STABLE, f"{self._target}: {detail}")
        self._stable[result.leader_epoch] = result.last_stable_offset
        return result

    def collect(self, position: int, result: FetchResult, seen: dict[str, int]) -> None:
        """Return the values of an answer; report a violation if a value occurs twice."""
        for batch in split_batches(result.data):
            if batch.header.is_control or not batch.header.record_count:
                continue
            for record in read_records(batch):
                value = (record.value or b"").decode()
                if record.offset < position:
                    continue
                if value in seen:
                    detail = f"{value} is at {seen[value]} and at {record.offset}"
                    self.cluster.violated(VISIBLE, f"{self._target}: {detail}")
                seen[value] = record.offset

    def _restart(self, position: int, error: OffsetOutOfRange) -> int:
        start = int(str(error.details["start"]))
        if start <= position:
            self.cluster.violated("I13 a position stays valid", f"{self.name}: {error}")
        log = self.story.judge.log_of((self._target.topic, self._target.partition))
        if start > log.known_from:  # which a replica may report that begins before
            self.cluster.log_starts.reported(self._target, start)
        return start
