"""Queries that write to a sink in runs, as Spark's connector does: with drivers, and with tasks for each
batch.

A repeated batch has equal values, but it may divide them among its tasks in another way. Each value is
written with the name of the attempt. The drivers of a query share a note of the newest committed batch, in
place of a checkpoint: each run begins after this batch. At any step a driver may die without an abort, or
sleep and continue after it was fenced. The second query takes the sink over.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from raftlog.errors import Conflict, RaftlogError
from transactions.records import Handle, Participant
from transactions.requests import (
    AbortBatch,
    BeginRun,
    CommitBatch,
    Described,
    OfOneId,
    Prepare,
    ReadTransaction,
    Reply,
    RunBegun,
)
from verification.simulator.result import Broken
from verification.simulator.scenarios.transactions.clients import Story, TransactionClient
from verification.simulator.scenarios.transactions.odds import ATTEMPTS, QUERY_KEY, SECOND, query_id
from verification.simulator.scenarios.transactions.producers import Progress, TransactionalProducer
from verification.simulator.scenarios.transactions.sink_log import WHOLE, Batch
from verification.simulator.simulated_cluster import SimulatedCluster

SIZES: Final = (0, 3, 1, 4, 2)  # of batches in turns
WRITTEN_BY: Final = " by "
DIES_ODDS: Final = 0.04  # at each step
ABORTS_ODDS: Final = 0.5  # of a batch that has failed
PATIENCE_S: Final = 6.0
REST_S: Final = 0.5  # between two runs of a driver
TAKEOVER_S: Final = 4.0


def values_of(batch: Batch) -> tuple[str, ...]:
    """Return the values of a batch; all attempts to write it have equal values."""
    size = SIZES[batch.sequence % len(SIZES)]
    return tuple(f"{batch.owner} {batch.sequence} {number}" for number in range(size))


def check_batch(story: Story, batch: Batch, handles: tuple[Handle, ...]) -> None:
    """Check that the transactions of a committed batch have all values of the batch, each once. Raises
    ``Broken``.
    """
    if batch.key != QUERY_KEY:
        return
    writes = [write for one in handles for write in story.writes.get(one, ())]
    written = [value.partition(WRITTEN_BY)[0] for write in writes for value in write.values]
    if sorted(written) != sorted(values_of(batch)):
        raise Broken(WHOLE, f"{batch} is committed with {written}, not with {values_of(batch)}")


class Died(Exception):
    """Raised when the driver dies: it sends no more requests."""


class Staged(NamedTuple):
    """The report of a task to its driver: the epoch of the run, and the prepared transaction, if any."""

    epoch: int
    handle: Handle | None
    is_committed: bool = False


class Driver(TransactionClient):
    """A driver process, which starts one run of a query after another."""

    def __init__(self, cluster: SimulatedCluster, name: str, story: Story, query: str) -> None:
        super().__init__(cluster, name, story)
        self._query = query
        self._takes_over = query == SECOND

    async def run(self) -> None:
        """Run queries until the producers of the run end. Transactions that stay open are aborted after their
        timeout.
        """
        if self._takes_over:
            await asyncio.sleep(self.rng.expovariate(1.0) * TAKEOVER_S)
        number = 0
        while self.cluster.is_producing:
            await self.cluster.rest()
            number += 1
            try:
                await self._one_run(f"{self.name} {number}")
            except (RaftlogError, Died) as error:
                self.cluster.trace.note(None, f"{self.name} {number} ends: {error!r}")
            await asyncio.sleep(self.rng.expovariate(1.0) * REST_S)

    async def _one_run(self, run: str) -> None:
        sequence = self.story.noted.get(self._query, -1) + 1
        while self.cluster.is_producing:
            await self.cluster.rest()
            await self._batch(run, Batch(QUERY_KEY, self._query, sequence))
            self.story.noted[self._query] = max(sequence, self.story.noted.get(self._query, -1))
            sequence += 1
            await asyncio.sleep(self.rng.expovariate(1.0) * self.story.odds.think_s)

    async def _batch(self, run: str, batch: Batch) -> None:
        """Write a batch, and return once it is committed. Raises ``RaftlogError`` or ``Died``."""
        staged: list[Staged] = []
        try:
            for number, values in enumerate(self._shared(values_of(batch))):
                staged.append(await self._task(run, batch, number, values))
            if staged[0].is_committed:
                return
            handles = tuple(one.handle for one in staged if one.handle is not None)
            await self._step()
            epoch = staged[0].epoch
            await until_answered(
                self,
                CommitBatch(
                    key=QUERY_KEY, sequence=batch.sequence, handles=handles, run=run, run_epoch=epoch
                ),
            )
            await self._step()
        except RaftlogError:  # Spark aborts a batch also after a commit without an answer
            if staged and self.rng.random() < ABORTS_ODDS:
                await self._abort(staged)
            raise

    def _shared(self, values: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Divide the values among the tasks, at random each time."""
        cut, mixed = self.rng.randint(0, len(values)), self.rng.sample(values, len(values))
        return [tuple(mixed[:cut]), tuple(mixed[cut:])]

    async def _task(self, run: str, batch: Batch, number: int, values: tuple[str, ...]) -> Staged:
        """Run attempts of one task until an attempt has prepared a transaction with its values."""
        for attempt in range(ATTEMPTS):
            await self._step()
            begin = BeginRun(
                key=QUERY_KEY,
                owner=self._query,
                run=run,
                sequence=batch.sequence,
                is_takeover=self._takes_over,
            )
            reply = await until_answered(self, begin)
            assert isinstance(reply, RunBegun)
            if reply.is_committed or not values:
                return Staged(reply.epoch, None, reply.is_committed)
            name = f"{run} {batch.sequence} {number} {attempt}"
            task = Task(self.cluster, name, query_id(self._query, number, attempt), self.story)
            handle = await task.stage(values, reply.epoch)
            if handle is not None:
                return Staged(reply.epoch, handle)
        raise Died(f"all attempts of task {number} of {batch} have failed")

    async def _abort(self, staged: list[Staged]) -> None:
        handles = tuple(one.handle for one in staged if one.handle is not None)
        try:
            await self.request(AbortBatch(key=QUERY_KEY, handles=handles, run_epoch=staged[0].epoch))
        except RaftlogError:
            return

    async def _step(self) -> None:
        """Between two requests, let the driver sometimes die or sleep."""
        if self.cluster.is_healed:
            return
        if self.rng.random() < DIES_ODDS:
            raise Died("by itself")
        if self.rng.random() < self.story.odds.stalls:
            await asyncio.sleep(self.rng.uniform(0.2, 2.0) * self.story.odds.timeout_ms / 1000)


class Task(TransactionalProducer):
    """One attempt of a task, which prepares a transaction."""

    def __init__(self, cluster: SimulatedCluster, name: str, transactional_id: str, story: Story) -> None:
        super().__init__(cluster, name, transactional_id, story, prepares=True)
        self._transactional_id = transactional_id

    async def stage(self, values: tuple[str, ...], run_epoch: int) -> Handle | None:
        """Write values and prepare; return None if the transaction accepts no more batches. Raises
        ``RaftlogError``.
        """
        handle = await self._begun(run_epoch)
        sequences: dict[Participant, int] = {}
        for value in values:
            target = self.rng.choice(self.story.targets)
            sequence = sequences.get(target, 0)
            sequences[target] = sequence + 1
            written = (f"{value}{WRITTEN_BY}{self.name}",)
            if await self.write_values(handle, target, written, sequence) is not Progress.STORED:
                return None
        await until_answered(self, Prepare(transaction=handle, prepared_ms_max=self.story.odds.prepared_ms))
        return handle

    async def _begun(self, run_epoch: int) -> Handle:
        """Open a transaction. If an earlier attempt has prepared a transaction under the id, abort that
        transaction first.
        """
        timeout_ms = self.story.odds.timeout_ms
        try:
            return await self.open(timeout_ms=timeout_ms, run_epoch=run_epoch)
        except Conflict:
            reply = await until_answered(self, ReadTransaction(transactional_id=self._transactional_id))
            assert isinstance(reply, Described)
            found = Handle(self._transactional_id, reply.transaction.producer_id, reply.transaction.epoch)
            await until_answered(self, AbortBatch(key=QUERY_KEY, handles=(found,)))
            return await self.open(timeout_ms=timeout_ms, run_epoch=run_epoch)


async def until_answered(client: TransactionClient, request: OfOneId) -> Reply:
    """Send a request until it succeeds, is refused permanently, or takes too long. Raises
    ``RaftlogError``.
    """
    began_s = client.cluster.loop.now
    while True:
        try:
            return await client.request(request)
        except RaftlogError as error:
            if not error.retryable or client.cluster.loop.now - began_s > PATIENCE_S:
                raise
        await client.pause()
