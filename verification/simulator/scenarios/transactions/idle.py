"""A client of rows that expire within the run: it sometimes uses transactional ids, sinks and idempotency
keys.

Decides: which requests the client sends. Leaves to others: when the rows of these requests may be deleted
(``forgetting``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from broker.broker import Broker
from raftlog.errors import RaftlogError
from raftlog.types import NodeId
from transactions.records import (
    Handle,
    Key,
    KeyedRequest,
    RequestKey,
    Sink,
    SinkKey,
    Transaction,
    TransactionKey,
    Value,
)
from transactions.requests import BeginRun, Claim, Open
from verification.simulator.clients import TIMEOUT_MS
from verification.simulator.scenarios.expiry.forgetting import Forgetting
from verification.simulator.scenarios.expiry.odds import ExpiryOdds
from verification.simulator.scenarios.transactions.clients import Story, TransactionClient
from verification.simulator.simulated_cluster import SimulatedCluster

KEPT: Final = "T12 what was used within its retention is kept"
TRUSTED: Final = "T12 nothing is forgotten while no time is trusted"
FORGOTTEN: Final = "ids, sinks and answers forgotten"
NAMES: Final = ("idle 1", "idle 2")  # of ids and of sinks


class IdleUser(TransactionClient):
    """Uses each transactional id and each sink with pauses, and sends requests with idempotency keys."""

    def __init__(self, cluster: SimulatedCluster, odds: ExpiryOdds, story: Story) -> None:
        super().__init__(cluster, "idle", story)
        self._mean_s = odds.pause * odds.retention_ms / 1000
        self._forgetting = Forgetting(cluster, odds.retention_ms, kept=KEPT, trusted=TRUSTED)
        self._sent_s: dict[str | bytes, float] = {}  # by the incarnation, the run or the digest
        self._answered: set[Key] = set()

    @property
    def forgotten(self) -> int:
        """Return how many ids, sinks and answers to keyed requests have expired."""
        return self._forgetting.forgotten

    async def run(self) -> None:
        """Use the ids and sinks until the producers of the run end."""
        for name in NAMES:
            self.story.start(self._use(partial(self._open, name)))
            self.story.start(self._use(partial(self._register, name)))
            self.story.start(self._use(self._execute))
        while self.cluster.is_producing:
            self._forgetting.look()
            await asyncio.sleep(0.01)

    async def _use(self, act: Callable[[Broker, str], Awaitable[object]]) -> None:
        while self.cluster.is_producing:
            token = f"{len(self._sent_s)}"
            self._sent_s[token] = self.cluster.loop.now
            with contextlib.suppress(RaftlogError):
                await self.ask(self.machine(), partial(_with_token, act, token))
            await asyncio.sleep(self.rng.expovariate(1.0) * self._mean_s)

    async def _open(self, name: str, broker: Broker, token: str) -> None:
        request = Open(transactional_id=name, timeout_ms=TIMEOUT_MS, incarnation=token)
        await broker.transactions.service.ask(request, timeout_ms=TIMEOUT_MS)

    async def _register(self, name: str, broker: Broker, token: str) -> None:
        request = BeginRun(key=name, owner="query", run=token, sequence=0)
        await broker.transactions.service.ask(request, timeout_ms=TIMEOUT_MS)

    async def _execute(self, broker: Broker, token: str) -> None:
        await broker.transactions.one_shots.run(
            self._answer,
            partitions=(),
            transactional_id=None,
            claim=Claim(digest=token.encode(), fingerprint=b"", attempt=0),
            spread=self.rng.getrandbits(32),
            timeout_ms=TIMEOUT_MS,
        )

    async def _answer(self, handle: Handle, timeout_ms: int) -> bytes:
        self.begins(handle)
        self.judge.asked.commits.add(handle)
        self.judge.asked.aborts.add(handle)
        return b"answer"

    def committed(self, writer: NodeId, appended_s: float, key: Key, value: Value | None) -> None:
        """Check a committed row, given the leader that appended it and the time of the append. Raises
        ``Broken``.
        """
        match key, value:
            case TransactionKey(), Transaction(incarnations=(*_, token)):
                self._forgetting.used(key, self._sent_s[token])
            case SinkKey(), Sink(run=run):
                self._forgetting.used(key, self._sent_s[run])
            case RequestKey(digest=digest), KeyedRequest(answer=bytes()):
                self._answered.add(key)
                self._forgetting.used(key, self._sent_s[digest.decode()])
            case (TransactionKey(transactional_id=name), None) if name in NAMES:
                self._forgetting.deleted(key, writer, appended_s)
            case (SinkKey(), None):
                self._forgetting.deleted(key, writer, appended_s)
            case (RequestKey(), None) if key in self._answered:  # else it was given up
                self._forgetting.deleted(key, writer, appended_s)


def _with_token(
    act: Callable[[Broker, str], Awaitable[object]], token: str, broker: Broker
) -> Awaitable[object]:
    return act(broker, token)
