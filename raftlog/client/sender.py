"""Sends the batches of one partition to its leader, one task for each attempt.

Decides: nothing but the request itself. What may leave is the ``pipeline``'s to say, how long to
wait is said by ``retries``, where to send by ``metadata``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raftlog.client.buffer import Buffer, Lane
from raftlog.client.leader_watch import ask_leader
from raftlog.client.metadata import Metadata
from raftlog.client.options import ProducerOptions
from raftlog.client.pipeline import Pipeline, Shipment
from raftlog.client.receipts import NO_OFFSET, Batch, Durability, Stored
from raftlog.client.retries import pause_s
from raftlog.client.session import Reply, Session
from raftlog.errors import ConnectionLost, NotSent, RaftlogError, UnknownTopic
from raftlog.records.builder import build_batch, with_producer
from raftlog.wire import bodies, paths
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

_logger = logging.getLogger(__name__)
_NO_IDENTITY = (-1, -1, -1)
_PROOF_LASTS_S = 60.0  # a partition that was silent for longer starts one by one again
_TIMER_SLACK_S = 0.001  # timers may fire a little early, and nothing would wake a batch again
_PATIENCE_S = 1.0  # of silence before others are asked who leads now
_ANSWER_MARGIN_S = 1.0  # a broker is told to answer before we stop listening


class Identities:
    """Producer ids from the cluster: one for a producer, one more when its epochs are used up."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lives: list[asyncio.Task[int]] = []

    async def get(self, life: int) -> int:
        """The producer id of a life; asked for once, and again only after an error."""
        if len(self._lives) > life and self._lives[life].done() and _has_failed(self._lives[life]):
            del self._lives[life:]
        while len(self._lives) <= life:
            self._lives.append(asyncio.create_task(self._ask()))
        return await asyncio.shield(self._lives[life])

    async def close(self) -> None:
        """End requests under way."""
        for task in self._lives:
            task.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)

    async def _ask(self) -> int:
        reply = await self._session.ask_any("POST", paths.PRODUCERS, body=bodies.CreateProducer())
        return reply.read(bodies.ProducerBody).producer_id


class PartitionSender:
    """The way of one partition's batches from the buffer to the leader."""

    def __init__(
        self,
        lane: Lane,
        *,
        buffer: Buffer,
        options: ProducerOptions,
        session: Session,
        metadata: Metadata,
        identities: Identities,
        finish: Callable[[Batch, Stored | RaftlogError], None],
    ) -> None:
        self.lane = lane
        self._buffer = buffer
        self._options = options
        self._session = session
        self._metadata = metadata
        self._identities = identities
        self._finish = finish
        self._clock = session.clock
        self._loop = asyncio.get_running_loop()
        retries = options.wants_answer
        in_flight_max = PRODUCER_BATCHES_MAX if options.is_idempotent else 1
        self._pipeline = Pipeline(in_flight_max=in_flight_max, retries=retries)
        self._attempts: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._last_answer_at = 0.0
        timeout_ms = round(session.request_timeout_s * 1_000)
        self._query = f"?acks={options.acks}&route=none&timeout={timeout_ms}ms"
        self._path = paths.partition_records(lane.topic, lane.partition) + self._query

    def pump(self) -> None:
        """Send what may leave now. Called whenever that may have changed."""
        if self._pause is not None:
            return
        pipeline = self._pipeline
        if pipeline.must_settle and not self._settle():
            return
        if pipeline.is_idle and self._clock.monotonic() - self._last_answer_at > _PROOF_LASTS_S:
            pipeline.forget_proof()
        while (shipment := pipeline.next_to_send(self._take)) is not None:
            task = self._loop.create_task(self._attempt(shipment))
            self._attempts.add(task)
            task.add_done_callback(self._attempts.discard)

    async def close(self) -> None:
        """Stop at once. What has no outcome is told so."""
        if self._pause is not None:
            self._pause.cancel()
        tasks = list(self._attempts)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for batch, error in self._pipeline.abandon():
            self._finish(batch, error)
        self._buffer.make_due(self.lane)
        while (batch_left := self._buffer.take(self.lane, self._clock.monotonic())) is not None:
            self._finish(batch_left, NotSent("the producer was closed before this was sent"))

    def _settle(self) -> bool:
        """False when there is something to wait for first."""
        now = self._clock.monotonic()
        verdict = self._pipeline.settle(now)
        for batch, error in verdict.given_up:
            self._finish(batch, error)
        pause = pause_s(verdict.retry_after, verdict.attempts, self._session.rng)
        if pause:
            left_s = verdict.deadline + _TIMER_SLACK_S - now
            self._pause = self._loop.call_later(min(pause, left_s), self._resume)
        return not pause

    def _resume(self) -> None:
        self._pause = None
        self.pump()

    def _take(self) -> Batch | None:
        now = self._clock.monotonic()
        while (
            batch := self._buffer.take(self.lane, now + _TIMER_SLACK_S)
        ) is not None and batch.deadline <= now:
            limit_s = self._options.delivery_timeout_s
            self._finish(
                batch, NotSent(f"its turn did not come within {limit_s:g} s; the partition was too busy")
            )
        return batch

    async def _attempt(self, shipment: Shipment) -> None:
        try:
            reply = await self._post(shipment)
            stored = self._read(shipment, reply)
        except RaftlogError as error:
            self._learn(error)
            self._pipeline.failed(shipment, error)
        except Exception as error:
            _logger.exception("an attempt to send to %s/%s broke", self.lane.topic, self.lane.partition)
            broken = RaftlogError(f"an attempt to send this broke: {error!r}")
            self._pipeline.failed(shipment, broken)  # given up, as unknown
        else:
            self._last_answer_at = self._clock.monotonic()
            self._pipeline.delivered(shipment)
            self._finish(shipment.batch, stored)
        self.pump()

    async def _post(self, shipment: Shipment) -> Reply:
        deadline = shipment.batch.deadline
        if shipment.earlier_failure and self._clock.monotonic() >= deadline:
            raise shipment.earlier_failure  # its deadline ended the pause before this attempt
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                identity = await self._identity(shipment)
                leader = await self._metadata.leader_of(self.lane.topic, self.lane.partition)
        except TimeoutError:
            late = self._session.no_answer("no producer id or no leader could be found in time")
            raise shipment.earlier_failure or late from None
        except ConnectionLost as error:
            raise NotSent(
                f"no broker told who leads {self.lane.topic}/{self.lane.partition}: {error}"
            ) from error
        self._encode(shipment, identity)
        left_s = max(deadline - self._clock.monotonic(), 0.01)
        return await ask_leader(
            self._session,
            self._metadata,
            self.lane.topic,
            self.lane.partition,
            leader,
            "POST",
            self._path,
            body=shipment.encoded,
            patience_s=_PATIENCE_S,
            timeout_s=min(self._session.request_timeout_s + _ANSWER_MARGIN_S, left_s),
        )

    async def _identity(self, shipment: Shipment) -> tuple[int, int, int]:
        if not self._options.is_idempotent:
            return _NO_IDENTITY
        producer_id = await self._identities.get(self._pipeline.lives)
        return producer_id, self._pipeline.epoch, shipment.sequence

    def _encode(self, shipment: Shipment, identity: tuple[int, int, int]) -> None:
        if shipment.identity == identity:
            return
        if shipment.identity is None:
            producer_id, epoch, sequence = identity
            shipment.encoded = build_batch(
                shipment.batch.records,
                codec=self._options.codec,
                timestamp_ms=shipment.batch.timestamp_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        else:
            shipment.encoded = with_producer(shipment.encoded, *identity)
        shipment.identity = identity

    def _read(self, shipment: Shipment, reply: Reply) -> Stored:
        if reply.status == 202:
            return Stored(NO_OFFSET, None, Durability(self._options.acks, False, False, 0, -1))
        answer = reply.read(bodies.BatchesProduced)
        told = answer.durability
        durability = Durability(told.acks, told.committed, told.fsynced, told.replicas, answer.leader_epoch)
        return Stored(answer.base_offset, answer.timestamp, durability)

    def _learn(self, error: RaftlogError) -> None:
        if isinstance(error, UnknownTopic):
            self._metadata.forget(self.lane.topic)
        self._metadata.correct(self.lane.topic, self.lane.partition, error)


def _has_failed(task: asyncio.Task[int]) -> bool:
    return task.cancelled() or task.exception() is not None
