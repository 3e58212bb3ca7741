"""A client whose requests are whole transactions: each is stored as a whole, or refused and never visible.

The requests have no idempotency key, so no request is repeated. A request that a broker refuses permanently
must not be committed (T6).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from broker.broker import Broker
from partitions.values import QUORUM
from raftlog.errors import CommitUnknown, RaftlogError
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.types import TopicPartition
from transactions.records import Handle, Participant
from verification.simulator.clients import TIMEOUT_MS
from verification.simulator.scenarios.transactions.clients import TransactionClient, Write

THINK: Final = 4  # times the time that a producer thinks


class OneShotClient(TransactionClient):
    """Sends requests that store one value in each of several partitions, one request after another."""

    _values = 0

    async def run(self) -> None:
        """Send one request after another until the producers of the run end."""
        story = self.story
        while self.cluster.is_producing:
            await self.cluster.rest()
            self._values += 1
            targets = self.rng.sample(story.targets, self.rng.randint(1, len(story.targets)))
            try:
                await self.ask(self.machine(), partial(self._execute, targets))
            except RaftlogError:
                await self.pause()
            await asyncio.sleep(self.rng.expovariate(1.0) * THINK * story.odds.think_s)

    async def _execute(self, targets: list[Participant], broker: Broker) -> None:
        handles: list[Handle] = []
        try:
            await broker.transactions.one_shots.run(
                partial(self._work, broker, targets, handles),
                partitions=targets,
                transactional_id=None,
                claim=None,
                spread=self.rng.getrandbits(32),
                timeout_ms=TIMEOUT_MS,
            )
        except RaftlogError as error:
            is_open = isinstance(error, CommitUnknown) and error.details.get("committed") is not False
            for handle in () if is_open else handles:
                self.judge.refused(handle, error)
            raise
        for handle in handles:
            self.judge.ended(handle, True, self.written(handle))

    async def _work(
        self,
        broker: Broker,
        targets: list[Participant],
        handles: list[Handle],
        handle: Handle,
        timeout_ms: int,
    ) -> bytes:
        """Write a batch to each partition. The broker may commit or abort the batches; a later incarnation
        may abort them.
        """
        handles.append(handle)
        self.begins(handle)
        self.judge.asked.commits.add(handle)
        self.judge.asked.aborts.add(handle)
        for target in targets:
            value = f"{self.name}-{self._values}-{target[0]}-{target[1]}"
            write = Write(target, (value,))
            self.story.writes.setdefault(handle, []).append(write)
            plain = build_batch([Record(value=value.encode())], codec=Codec.NONE, timestamp_ms=1)
            data = with_producer(plain, handle.producer_id, handle.epoch, 0, in_transaction=True)
            receipt = await broker.gateway.append(
                TopicPartition(*target),
                data,
                acks=QUORUM,
                timeout_ms=timeout_ms,
                transactional_id=handle.transactional_id,
            )
            write.offset = receipt.base_offset
        return b""
