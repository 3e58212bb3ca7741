"""The producer of a queue's jobs, and workers that receive them through any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from partitions.values import QUORUM
from queues.requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import RaftlogError, TopicNotFound
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.records.tags import TAG_RECORD_HEADER, tag_fields
from raftlog.types import TopicPartition
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.machine import Machine
from verification.simulator.scenarios.queues.judge import REASON, Judge
from verification.simulator.scenarios.queues.odds import CREW, MAIL, TAGS, QueueOdds
from verification.simulator.simulated_cluster import SimulatedCluster

LEASE_BYTES: Final = 8
WAIT_GRACE_MS: Final = 500


class JobProducer(Client):
    """Appends records with keys to the topic."""

    def __init__(self, cluster: SimulatedCluster, odds: QueueOdds) -> None:
        super().__init__(cluster, "of jobs")
        self._queue = odds
        self.is_used = False  # whether anything was acknowledged
        self._tags_rng = cluster.rng("tags of jobs")

    async def run(self) -> None:
        """Append records until the producers of the run end."""
        number, odds = 0, self._queue
        while self.cluster.is_producing:
            await self.cluster.rest()
            number += 1
            key = b"k%d" % self.rng.randrange(odds.keys) if self.rng.random() < 0.8 else None
            data = self._batch(b"%d" % number, key)
            target = TopicPartition(MAIL, self.rng.randrange(odds.partitions))
            try:
                await self.ask(
                    self.machine(),
                    lambda broker, target=target, data=data: broker.gateway.append(  # type: ignore[misc]
                        target, data, acks=QUORUM, timeout_ms=TIMEOUT_MS
                    ),
                )
                self.is_used = True
            except RaftlogError:
                await self.pause()
            await asyncio.sleep(self.rng.expovariate(1.0) * odds.produce_s)

    def _batch(self, value: bytes, key: bytes | None) -> bytes:
        """Build a batch of one record, with tags if the queue selects by tags. Most batches list their tags
        in the header.
        """
        if self._queue.selection is None:
            return build_batch([Record(value, key)], codec=Codec.NONE, timestamp_ms=1)
        some = [tag for tag in TAGS if self._tags_rng.random() < 0.5]
        record = Record(value, key, tuple((TAG_RECORD_HEADER, tag.encode()) for tag in some))
        codec = self._tags_rng.choice((Codec.NONE, Codec.ZSTD, Codec.GZIP))
        return build_batch([record], codec=codec, timestamp_ms=1, lists_tags=codec is not Codec.GZIP)


class Worker(Client):
    """Receives jobs, and acknowledges most jobs."""

    def __init__(self, cluster: SimulatedCluster, name: str, odds: QueueOdds, judge: Judge) -> None:
        super().__init__(cluster, name)
        self._queue = odds
        self._judge = judge
        self.requests: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Receive and settle jobs until the producers of the run end."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            await self.round(self.machine(), is_diligent=False)

    async def round(self, machine: Machine, *, is_diligent: bool) -> None:
        """Receive jobs once, and settle them. A diligent worker acknowledges all jobs at once."""
        lease, odds = self.rng.randbytes(LEASE_BYTES), self._queue
        count = self.rng.randint(1, odds.count_max)
        try:
            received = await self._receive(machine, lease, count)
        except RaftlogError:
            await self.pause()
            return
        if not self.cluster.is_healed and self.rng.random() < odds.late:
            self._start(self._again(lease, count))
        tokens = [Token(job.partition, job.offset, lease) for job in received.jobs]
        for token in tokens:
            if not is_diligent:
                await asyncio.sleep(self.rng.expovariate(1.0) * odds.work_s)
            await self._handle(token, is_diligent=is_diligent)
        if not tokens:
            await self.pause()

    async def _receive(self, machine: Machine, lease: bytes, count: int) -> Received:
        odds = self._queue
        found = machine.broker and machine.broker.controller.image.topics.get(MAIL)
        if not found:
            raise TopicNotFound(f"there is no topic {MAIL}")
        request = Receive(
            group=CREW,
            topic=MAIL,
            topic_id=found.topic_id,
            lease=lease,
            count_max=count,
            lease_ms=odds.lease_ms,
            deliveries_max=odds.deliveries_max,
            wait_ms=odds.wait_ms,
            is_ordered=odds.is_ordered,
            **tag_fields(odds.selection),
        )
        self._judge.asks(lease)
        try:
            reply = await self.ask(
                machine,
                lambda broker: broker.groups.service.ask(
                    request, timeout_ms=TIMEOUT_MS + odds.wait_ms + WAIT_GRACE_MS, creates=True
                ),
            )
        except RaftlogError as error:
            self._judge.asked_in_vain(lease, error)
            raise
        assert isinstance(reply, Received), reply
        for job in reply.jobs:
            self._judge.received(lease, job)
        return reply

    async def _again(self, lease: bytes, count: int) -> None:
        """Repeat a request for jobs after a while; the worker ignores the jobs in the response."""
        await asyncio.sleep(self.rng.expovariate(1.0) * self._queue.late_s)
        try:
            await self._receive(self.machine(), lease, count)
        except RaftlogError:
            return

    async def _handle(self, token: Token, *, is_diligent: bool) -> None:
        odds, drawn = self._queue, self.rng.random()
        if is_diligent:
            await self._settle(token, "ack")
        elif drawn < odds.forgets:
            return
        elif drawn < odds.forgets + odds.nacks:
            await self._settle(token, "nack", self.rng.randint(0, odds.nack_ms))
        elif drawn < odds.forgets + odds.nacks + odds.gives_up:
            await self._settle(token, "dead")
        else:
            if self.rng.random() < odds.extends:
                await self._settle(token, "extend", odds.lease_ms)
            await self._settle(token, "ack")

    async def _settle(self, token: Token, how: str, time_ms: int = 0) -> None:
        request = Settle(
            group=CREW,
            topic=MAIL,
            tokens=(token,),
            how=how,  # type: ignore[arg-type]
            time_ms=time_ms,
            reason=REASON,
        )
        try:
            reply = await self._say(request)
        except RaftlogError:
            return
        if how == "ack" and not reply.lost:
            self._judge.settled(token)
        if how == "ack" and not self.cluster.is_healed and self.rng.random() < self._queue.late:
            self._start(self._say_again(request))

    async def _say_again(self, request: Settle) -> None:
        """Repeat an acknowledgement much later: it must change nothing."""
        await asyncio.sleep(self.rng.expovariate(1.0) * self._queue.late_s)
        try:
            await self._say(request)
        except RaftlogError:
            return

    async def _say(self, request: Settle) -> Settled:
        """Send a settlement in one attempt. Raises ``RaftlogError``."""
        self._judge.says(request)
        try:
            reply = await self.ask(
                self.machine(), lambda broker: broker.groups.service.ask(request, timeout_ms=TIMEOUT_MS)
            )
        except RaftlogError as error:
            self._judge.heard(request, error)
            raise
        assert isinstance(reply, Settled), reply
        self._judge.heard(request, reply)
        return reply

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.requests.add(task)
        task.add_done_callback(self.requests.discard)
