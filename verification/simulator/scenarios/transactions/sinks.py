"""A sink that commits prepared transactions together, and an operator who aborts open transactions."""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog.errors import RaftlogError
from transactions.records import Handle
from transactions.requests import AbortBatch, AbortOpen, CommitBatch, Described, ReadTransaction
from verification.simulator.clients import TIMEOUT_MS
from verification.simulator.scenarios.transactions.clients import Story, TransactionClient
from verification.simulator.scenarios.transactions.judge import ANSWERED
from verification.simulator.simulated_cluster import SimulatedCluster

KEY: Final = "sink"
ABORTS_ODDS: Final = 0.2


class Sink(TransactionClient):
    """Commits the prepared transactions of its tasks in batches with rising sequences."""

    def __init__(self, cluster: SimulatedCluster, story: Story) -> None:
        super().__init__(cluster, KEY, story)
        self._sequence = 0

    async def run(self) -> None:
        """Commit until the run ends. Transactions that are not decided at the end are aborted after their
        timeout.
        """
        while self.cluster.is_producing:
            await self.cluster.rest()
            await asyncio.sleep(self.rng.expovariate(1.0) * 4 * self.story.odds.think_s)
            handles = tuple(self.story.prepared.values())
            self.story.prepared.clear()
            if handles and self.rng.random() < ABORTS_ODDS:
                await self._abort(handles)
            elif handles:
                await self._commit(handles)

    async def _commit(self, handles: tuple[Handle, ...]) -> None:
        self._sequence += 1
        request = CommitBatch(key=KEY, sequence=self._sequence, handles=handles)
        while self.cluster.is_producing:
            try:
                await self.request(request)
                return
            except RaftlogError as error:
                if not error.retryable:  # the time of one of them was up
                    await self._abort(handles)
                    return
                await self.pause()

    async def _abort(self, handles: tuple[Handle, ...]) -> None:
        try:
            await self.request(AbortBatch(key=KEY, handles=handles))
        except RaftlogError:
            return


class Operator(TransactionClient):
    """Aborts open transactions of other clients, and reads their state."""

    def __init__(self, cluster: SimulatedCluster, story: Story, ids: list[str]) -> None:
        super().__init__(cluster, "operator", story)
        self._ids = ids

    async def run(self) -> None:
        """Abort and read transactions until the run ends."""
        while not self.cluster.is_healed:
            await self.cluster.rest()
            await asyncio.sleep(self.rng.expovariate(1.0) * self.story.odds.operator_s)
            name = self.rng.choice(self._ids)
            act = self._look if self.rng.random() < 0.5 else self._abort
            try:
                await act(name)
            except RaftlogError:
                continue

    async def _abort(self, name: str) -> None:
        await self.request(AbortOpen(transactional_id=name))

    async def _look(self, name: str) -> None:
        """Read the state of a transaction linearizably (T6)."""
        self.judge.look()
        before = self.judge.decided.state.transactions.get(name)
        reply = await self.ask(
            self.machine(),
            lambda broker: broker.transactions.service.ask(
                ReadTransaction(transactional_id=name), timeout_ms=TIMEOUT_MS
            ),
        )
        assert isinstance(reply, Described)
        found = reply.transaction
        if before is not None and before.producer_id == found.producer_id and found.epoch < before.epoch:
            self.cluster.violated(ANSWERED, f"{name} is shown as {found}, and was {before} before")
