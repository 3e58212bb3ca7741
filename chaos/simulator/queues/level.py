"""The queue of a run: its producer, its workers, and when all jobs must be done (J7)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from chaos.simulator.clients import TIMEOUT_MS, Client
from chaos.simulator.faults import Faults
from chaos.simulator.machine import Machine
from chaos.simulator.queues.judge import REASON, Judge
from chaos.simulator.queues.odds import CREW, MAIL, TAGS, QueueOdds
from chaos.simulator.queues.redriver import REDRIVEN, Redriver
from chaos.simulator.simulated_cluster import SimulatedCluster
from groups.records import TOPIC
from partitions.values import QUORUM
from queues.requests import Receive, Received, Settle, Settled, Token
from raftlog.errors import RaftlogError, TopicNotFound
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.records.keys import partition_for_key
from raftlog.records.tags import TAG_RECORD_HEADER, tag_fields
from raftlog.types import GroupId, TopicPartition

IN_TIME: Final = "J7 without faults every job is done, and every replica knows it"
RECOVERY_S: Final = 30.0
LEASE_BYTES: Final = 8
WAIT_GRACE_MS: Final = 500


class QueueLevel:
    """See the package."""

    def __init__(self, cluster: SimulatedCluster, odds: QueueOdds, faults: Faults) -> None:
        self._cluster = cluster
        self._odds = odds
        self._faults = faults
        self._partition = partition_for_key(CREW.encode(), cluster.odds.offsets_partitions)
        self.judge = Judge(cluster, self._partition, is_ordered=odds.is_ordered, selection=odds.selection)
        self.judge.on_leased = faults.leased
        self.judge.on_buried = self._is_buried
        self.judge.on_redriven = faults.redriven
        self._workers = [
            Worker(cluster, f"worker {number}", odds, self.judge) for number in range(odds.workers)
        ]
        self._producer = JobProducer(cluster, odds)
        self._redriver = Redriver(cluster, odds, self.judge)

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """The commit index of a group has changed."""
        self.judge.committed(machine, group_id)

    def clients(self) -> list[Worker | JobProducer | Redriver]:
        """Those that run during the faults."""
        redrivers = [self._redriver] if self._odds.redrive_s else []
        return [self._producer, *self._workers, *redrivers]

    async def settled(self) -> None:
        """Late requests are over, and workers that answer all jobs get all of them done (J7)."""
        for requests in (*(worker.requests for worker in self._workers), self._redriver.requests):
            while requests:
                await asyncio.wait(requests)
        odds = self._odds
        within_s = RECOVERY_S + odds.deliveries_max * (odds.lease_ms + odds.nack_ms) / 1000
        deadline = self._cluster.loop.now + within_s
        while (problem := self._problem()) is not None:
            if self._cluster.loop.now > deadline:
                self._cluster.violated(IN_TIME, problem)
                break
            for machine in self._cluster.machines:
                await self._workers[0].round(machine, is_diligent=True)
            self.judge.look()

    def check(self) -> dict[str, int]:
        """In the end every replica has the committed rows, and no answer is of what no log shows.

        Returns how often dead letters became jobs again.
        """
        self.judge.look()
        if self.judge.waiting:
            self._cluster.violated(IN_TIME, f"{len(self.judge.waiting)} checks are of what no log shows")
        record = self.judge.records.get((TOPIC, self._partition))
        for machine in self._cluster.machines:
            if machine.broker is None or record is None or machine.node not in record.membership.members:
                continue
            state = machine.broker.groups.coordinators[self._partition].state
            jobs = {slot: (job.partition, job.offset) for (_, slot), job in state.jobs.get(CREW, {}).items()}
            queues = {partition: row for (_, partition), row in state.queues.get(CREW, {}).items()}
            if (jobs, queues) != (self.judge.slots, self.judge.queues):
                detail = f"{machine.name} has {jobs} and {queues}"
                self._cluster.violated(IN_TIME, f"{detail}; {self.judge.slots} and {self.judge.queues}")
        return {REDRIVEN: sum(known.redrives for known in self.judge.jobs.values())}

    def _problem(self) -> str | None:
        if not self.judge.keys and not self.judge.others:
            return None if not self._producer.is_used else "no record is known"
        for place in self.judge.keys:
            known = self.judge.jobs.get(place)
            if known is None or not known.is_done:
                return f"{place} is not done: {known}"
        return None

    def _is_buried(self) -> None:
        record = self.judge.records.get((TOPIC, self._partition))
        if record is None:
            return
        for machine in self._cluster.machines:
            group = None if machine.broker is None else machine.broker.host.groups.get(record.group_id)
            if group is not None and group.is_leader:
                self._faults.buried(machine)


class JobProducer(Client):
    """Appends records with keys to the topic."""

    def __init__(self, cluster: SimulatedCluster, odds: QueueOdds) -> None:
        super().__init__(cluster, "of jobs")
        self._queue = odds
        self.is_used = False  # whether anything was acknowledged
        self._tags_rng = cluster.rng("tags of jobs")

    async def run(self) -> None:
        """Until the run no longer produces."""
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
        """A batch of one record, with tags if the queue selects by them. Most batches list these."""
        if self._queue.selection is None:
            return build_batch([Record(value, key)], codec=Codec.NONE, timestamp_ms=1)
        some = [tag for tag in TAGS if self._tags_rng.random() < 0.5]
        record = Record(value, key, tuple((TAG_RECORD_HEADER, tag.encode()) for tag in some))
        codec = self._tags_rng.choice((Codec.NONE, Codec.ZSTD, Codec.GZIP))
        return build_batch([record], codec=codec, timestamp_ms=1, lists_tags=codec is not Codec.GZIP)


class Worker(Client):
    """Receives jobs, and acknowledges most of them."""

    def __init__(self, cluster: SimulatedCluster, name: str, odds: QueueOdds, judge: Judge) -> None:
        super().__init__(cluster, name)
        self._queue = odds
        self._judge = judge
        self.requests: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until the run no longer produces."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            await self.round(self.machine(), is_diligent=False)

    async def round(self, machine: Machine, *, is_diligent: bool) -> None:
        """Receive once, and say something about the jobs. A diligent worker acknowledges all, and at once."""
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
        """The same receive arrives once more: who gets the same jobs does nothing with them."""
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
        """An acknowledgement arrives once more, much later: it changes nothing."""
        await asyncio.sleep(self.rng.expovariate(1.0) * self._queue.late_s)
        try:
            await self._say(request)
        except RaftlogError:
            return

    async def _say(self, request: Settle) -> Settled:
        """Send it once. Raises ``RaftlogError``."""
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
