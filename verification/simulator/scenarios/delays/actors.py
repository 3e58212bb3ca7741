"""Clients that send delayed messages through any broker, and cancel and reschedule some of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Final

from broker.broker import Broker
from delayed.records import ID_BYTES
from delayed.requests import Add, Added, NewMessage, When
from delayed.service import MessageId
from raftlog.errors import DelayedAlreadyDelivered, DelayedNotFound, RaftlogError, TopicNotFound
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.machine import Machine
from verification.simulator.scenarios.delays.judge import Asked, Judge
from verification.simulator.scenarios.delays.odds import (
    FLEETING,
    REMINDERS,
    SHRINKING,
    DelayOdds,
)
from verification.simulator.simulated_cluster import SimulatedCluster

ALTER_S: Final = 1.0  # between two changes of a setting of the topic
LOW_BYTES: Final = 1_024  # the least that a topic takes; a move may have many more
LONG: Final = (("filling", bytes(600)),)  # headers: one such record fits into that, two do not
REMEMBERED: Final = 40  # messages that one client cancels or changes


class DelayedClient(Client):
    """Sends messages whose values are their ids; cancels and reschedules some of the messages."""

    def __init__(self, cluster: SimulatedCluster, name: str, odds: DelayOdds, judge: Judge) -> None:
        super().__init__(cluster, name)
        self._delays = odds
        self._judge = judge
        self._sent: list[tuple[MessageId, bool]] = []  # and whether it is known to be accepted
        self.requests: set[asyncio.Task[None]] = set()
        self.limits_lowered = 0

    async def run(self) -> None:
        """Send, cancel and reschedule messages until the producers of the run end."""
        cluster, odds = self.cluster, self._delays
        delete_s = cluster.loop.now + cluster.odds.faults_s / 2
        alters = odds.lowers_limit and self.name.endswith(" 0")
        alter_s, is_low = cluster.loop.now + ALTER_S, False
        while cluster.is_producing:
            await cluster.rest()
            drawn = self.rng.random()
            if odds.deletes_topic and self.name.endswith(" 0") and cluster.loop.now > delete_s:
                delete_s = float("inf")
                await self._delete_topic()
            elif alters and cluster.loop.now > alter_s:
                is_low, alter_s = not is_low, cluster.loop.now + ALTER_S
                await self._limit(LOW_BYTES if is_low else None)
            elif self._sent and drawn < odds.cancels:
                await self._cancel(*self.rng.choice(self._sent))
            elif self._sent and drawn < odds.cancels + odds.reschedules:
                await self._reschedule(*self.rng.choice(self._sent))
            else:
                await self._add(self.machine())
            await asyncio.sleep(self.rng.expovariate(1.0) * odds.think_s)

    async def reaches(self, machine: Machine, within_s: float) -> bool:
        """Return whether a broker accepts a delayed message within this time."""
        deadline = self.cluster.loop.now + within_s
        while not await self._add(machine, is_probe=True):
            if self.cluster.loop.now > deadline:
                return False
            await self.pause()
        return True

    async def _add(self, machine: Machine, *, is_probe: bool = False) -> bool:
        odds, rng = self._delays, self.rng
        topic = FLEETING if odds.deletes_topic and not is_probe and rng.random() < 0.3 else REMINDERS
        if odds.removes_partitions and not is_probe and rng.random() < 0.5:
            topic = SHRINKING
        partitions = {REMINDERS: odds.targets, FLEETING: 1, SHRINKING: self._shrinking(machine)}[topic]
        ids = tuple(rng.randbytes(ID_BYTES) for _ in range(rng.randint(1, odds.messages_max)))
        messages = tuple(
            NewMessage(
                id_,
                rng.randrange(partitions),
                When(0 if is_probe else rng.randint(0, odds.delay_ms_max)),
                id_,
                None,
                LONG if odds.lowers_limit else (),
                None,
            )
            for id_ in ids
        )
        spread = rng.getrandbits(32)
        is_accepted = False
        with contextlib.suppress(RaftlogError):
            is_accepted = await self._send(machine, topic, ids, messages, spread)
        self._sent = [
            *self._sent,
            *((MessageId(spread % odds.coordinators, id_), is_accepted) for id_ in ids),
        ]
        del self._sent[:-REMEMBERED]
        if not self.cluster.is_healed and rng.random() < odds.late:
            self._start(self._again(topic, ids, messages, spread))
        return is_accepted

    @staticmethod
    def _shrinking(machine: Machine) -> int:
        """Return the number of partitions of the topic that loses partitions, as a broker knows it."""
        topics = {} if machine.broker is None else machine.broker.controller.image.topics
        return len(topics[SHRINKING].partitions) if SHRINKING in topics else 1

    async def _send(
        self,
        machine: Machine,
        topic: str,
        ids: tuple[bytes, ...],
        messages: tuple[NewMessage, ...],
        spread: int,
    ) -> bool:
        async def ask(broker: Broker) -> Added:
            found = broker.controller.image.topics.get(topic)
            if found is None:
                raise TopicNotFound(f"there is no topic {topic}")
            request = Add(topic=topic, topic_id=str(found.topic_id), messages=messages)
            _, added = await broker.delays.service.add(request, spread, TIMEOUT_MS)
            return added

        additions: list[Asked] = [("add", id_) for id_ in ids]
        self._judge.asks(*additions)
        try:
            await self.ask(machine, ask, lambda broker, added: self._judge.accepted(ids, added.due_ms))
        except RaftlogError as error:
            self._judge.refused(error, *additions)
            raise
        return True

    async def _again(
        self, topic: str, ids: tuple[bytes, ...], messages: tuple[NewMessage, ...], spread: int
    ) -> None:
        """Repeat the request that added messages, after a while: it must not add any message."""
        await asyncio.sleep(self.rng.expovariate(1.0) * self._delays.late_s)
        try:
            await self._send(self.machine(), topic, ids, messages, spread)
        except RaftlogError:
            return

    async def _cancel(self, which: MessageId, is_accepted: bool) -> None:
        self._judge.asks(("cancel", which.id))
        try:
            await self.ask(
                self.machine(),
                lambda broker: broker.delays.service.cancel(which, TIMEOUT_MS),
                lambda broker, answer: self._judge.cancelled(which.id),
            )
        except RaftlogError as refusal:
            self._judge.refused(refusal, ("cancel", which.id))
            self._refused(which, is_accepted, refusal)

    async def _reschedule(self, which: MessageId, is_accepted: bool) -> None:
        when = When(self.rng.randint(0, self._delays.delay_ms_max))
        before = self._judge.changes_of(which.id)
        try:
            await self.ask(
                self.machine(),
                lambda broker: broker.delays.service.reschedule(
                    which, when, delay_ms_max=-1, timeout_ms=TIMEOUT_MS
                ),
                lambda broker, found: self._judge.changed(which.id, found.waiting.due_ms, before),
            )
        except RaftlogError as refusal:
            self._refused(which, is_accepted, refusal)

    def _refused(self, which: MessageId, is_accepted: bool, refusal: RaftlogError) -> None:
        if isinstance(refusal, DelayedAlreadyDelivered):
            self._judge.too_late(which.id)
        elif isinstance(refusal, DelayedNotFound) and is_accepted:
            self._judge.unknown(which.id)

    async def _limit(self, bytes_max: int | None) -> None:
        """Lower the size limit of the topic's batches below batches that it accepted before, or raise the
        limit again.
        """
        try:
            await self.ask(
                self.machine(),
                lambda broker: broker.controller.alter_config(
                    REMINDERS, {"max.message.bytes": bytes_max}, expected_version=None, timeout_ms=TIMEOUT_MS
                ),
            )
            self.limits_lowered += bytes_max is not None
        except RaftlogError:
            return

    async def _delete_topic(self) -> None:
        try:
            await self.ask(
                self.machine(),
                lambda broker: broker.controller.delete_topic(
                    FLEETING, expected_version=None, timeout_ms=TIMEOUT_MS
                ),
            )
        except RaftlogError:
            return

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.requests.add(task)
        task.add_done_callback(self.requests.discard)
