"""Sends the batches of one partition to its leader, one task for each attempt.

Decides: the content of a request. Leaves to others: which batches to send (``pipeline``), how long to wait
before a retry (``retries``), and which broker leads the partition (``metadata``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from raftlog import tracing
from raftlog.client.buffer import Buffer, PartitionQueue
from raftlog.client.incarnation import TransactionName
from raftlog.client.leader_watch import ask_leader
from raftlog.client.listing import ATTEMPT_TIMEOUT_S
from raftlog.client.logs import client_logger
from raftlog.client.metadata import Metadata
from raftlog.client.options import ProducerOptions
from raftlog.client.pipeline import InFlightBatch, Pipeline
from raftlog.client.receipts import NO_OFFSET, Batch, Durability, Stored
from raftlog.client.replies import Reply
from raftlog.client.retries import pause_s
from raftlog.client.session import Session
from raftlog.client.user_code import described
from raftlog.errors import ConnectionLost, NotSent, RaftlogError, TopicNotFound
from raftlog.records.builder import build_batch, with_producer
from raftlog.wire import bodies, records
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

_logger = client_logger(__name__)
_NO_IDENTITY = (-1, -1, -1)
_PROOF_LASTS_S = 60.0  # after a longer silence batches are sent one by one again
_TIMER_SLACK_S = 0.001  # timers may fire slightly early, and no other timer would wake the batch
_PATIENCE_MIN_S = 0.2  # of silence before other brokers are asked for the leader
_PATIENCE_ANSWERS = 4  # or so many usual response times, so that busy brokers are not asked
_USUAL_WEIGHT = 1 / 8  # of the newest answer in the usual time, as in TCP's estimate (RFC 6298)
_ANSWER_MARGIN_S = 1.0  # how much shorter the broker's timeout is than the client's


class ProducerIdRequests:
    """Requests producer ids: the first id, and another each time all epochs of an id are used up."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._requests: list[asyncio.Task[int]] = []

    async def get(self, generation: int) -> int:
        """The producer id of a generation. A broker is asked once, and again only after an error."""
        requests = self._requests
        if len(requests) > generation and requests[generation].done() and _has_failed(requests[generation]):
            del requests[generation:]
        while len(requests) <= generation:
            requests.append(asyncio.create_task(self._ask()))
        return await asyncio.shield(requests[generation])

    async def close(self) -> None:
        """End requests in progress."""
        for task in self._requests:
            task.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)

    async def _ask(self) -> int:
        producer = await self._session.call(
            records.CREATE, bodies.CreateProducer(), attempt_timeout_s=ATTEMPT_TIMEOUT_S
        )
        return producer.producer_id


class PartitionSender:
    """Takes one partition's batches from the buffer and sends them to the leader."""

    def __init__(
        self,
        queue: PartitionQueue,
        *,
        buffer: Buffer,
        options: ProducerOptions,
        session: Session,
        metadata: Metadata,
        producer_ids: ProducerIdRequests,
        finish: Callable[[Batch, Stored | RaftlogError], None],
        turned_away: Callable[[PartitionQueue], None],
        left: Callable[[PartitionQueue, list[Batch]], None],
        transaction: TransactionName | None = None,
    ) -> None:
        self.queue = queue
        self._buffer = buffer
        self._options = options
        self._session = session
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._finish = finish
        self._turned_away = turned_away  # called if the partition takes no more records
        self._left = left  # called with the batches for other partitions
        self._handed_back: list[Batch] = []
        self._is_leaving = False
        self._clock = session.clock
        self._loop = asyncio.get_running_loop()
        retries = options.wants_answer
        in_flight_max = PRODUCER_BATCHES_MAX if options.is_idempotent else 1
        self._transaction = transaction
        self._pipeline = Pipeline(
            in_flight_max=in_flight_max,
            retries=retries,
            transaction_epoch=None if transaction is None else transaction.epoch,
        )
        self._attempts: dict[asyncio.Task[None], None] = {}  # in order, so that equal runs stay equal
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._last_answer_at = 0.0
        self._usual_s = 0.0  # the usual time to an answer, smoothed
        timeout_ms = round(session.request_timeout_s * 1_000)
        self._query = f"?acks={options.acks}&timeout={timeout_ms}ms"
        path = records.PRODUCE_TO_PARTITION.at(topic=queue.topic, partition=queue.partition)
        self._path = path + self._query

    def pump(self) -> None:
        """Send all batches that may be sent now.

        Call this whenever another batch may have become sendable.
        """
        if self._pause is not None or self._is_closed:
            return
        pipeline = self._pipeline
        if pipeline.must_settle and not self._settle():
            return
        if pipeline.is_idle and self._clock.monotonic() - self._last_answer_at > _PROOF_LASTS_S:
            pipeline.forget_proof()
        if self._is_leaving and pipeline.is_idle:
            self._leave()
            return
        while (in_flight := pipeline.next_to_send(self._take)) is not None:
            task = self._loop.create_task(self._attempt(in_flight))
            self._attempts[task] = None
            task.add_done_callback(self._attempts.pop)

    def leave(self) -> None:
        """Send no further batches. Hand over the unsent batches once all batches in flight have outcomes."""
        self._is_leaving = True
        self.pump()

    def _leave(self) -> None:
        handed_back, self._handed_back, self._is_leaving = self._handed_back, [], False
        self._buffer.make_due(self.queue)
        while (batch := self._buffer.take(self.queue, math.inf)) is not None:
            handed_back.append(batch)
        self._left(self.queue, handed_back)

    async def close(self) -> None:
        """Stop sending at once: records without an outcome fail."""
        self._is_closed = True  # a timer may fire while the attempts end
        if self._pause is not None:
            self._pause.cancel()
        tasks = list(self._attempts)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for batch, error in self._pipeline.abandon():
            self._finish(batch, error)
        self._buffer.make_due(self.queue)
        while (batch_left := self._buffer.take(self.queue, self._clock.monotonic())) is not None:
            self._finish(batch_left, NotSent("the producer was closed before the record was sent"))
        for batch in self._handed_back:
            self._finish(batch, NotSent("the producer was closed before the record was sent"))

    def _settle(self) -> bool:
        """Carry out the pipeline's decision after a failure. False if sending must pause first."""
        now = self._clock.monotonic()
        decision = self._pipeline.settle(now)
        for batch, error in decision.given_up:
            self._finish(batch, error)
        if decision.handed_back:
            self._handed_back += decision.handed_back
            self._turned_away(self.queue)
        pause = pause_s(decision.retry_after, decision.attempts, self._session.rng)
        if pause:
            left_s = decision.deadline + _TIMER_SLACK_S - now
            self._pause = self._loop.call_later(min(pause, left_s), self._resume)
        return not pause

    def _resume(self) -> None:
        self._pause = None
        self.pump()

    def _take(self) -> Batch | None:
        if self._is_leaving:
            return None
        now = self._clock.monotonic()
        while (
            batch := self._buffer.take(self.queue, now + _TIMER_SLACK_S)
        ) is not None and batch.deadline <= now:
            limit_s = self._options.delivery_timeout_s
            self._finish(
                batch, NotSent(f"the batch was not sent within {limit_s:g} s; the partition was too busy")
            )
        return batch

    async def _attempt(self, in_flight: InFlightBatch) -> None:
        try:
            with tracing.sending(self.queue.topic, self.queue.partition, in_flight.batch.records):
                reply = await self._post(in_flight)
            stored = self._read(in_flight, reply)
        except RaftlogError as error:
            self._learn(error)
            self._pipeline.failed(in_flight, error)
        except Exception as error:
            _logger.exception(
                "an attempt to send to %s/%s failed unexpectedly", self.queue.topic, self.queue.partition
            )
            broken = RaftlogError(f"an attempt to send the record failed unexpectedly: {described(error)}")
            self._pipeline.failed(in_flight, broken)  # the batch fails, as unknown
        else:
            self._last_answer_at = self._clock.monotonic()
            self._pipeline.delivered(in_flight)
            self._finish(in_flight.batch, stored)
        self.pump()

    async def _post(self, in_flight: InFlightBatch) -> Reply:
        deadline = in_flight.batch.deadline
        if in_flight.earlier_failure and self._clock.monotonic() >= deadline:
            raise in_flight.earlier_failure  # its deadline ended the pause before this attempt
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                identity = await self._identity(in_flight)
                leader = await self._metadata.leader_of(self.queue.topic, self.queue.partition)
        except TimeoutError:
            late = self._session.no_answer("no producer id or no leader could be found in time")
            raise in_flight.earlier_failure or late from None
        except ConnectionLost as error:
            raise NotSent(
                f"no broker named the leader of {self.queue.topic}/{self.queue.partition}: {error}"
            ) from error
        self._encode(in_flight, identity)
        began = self._clock.monotonic()
        left_s = max(deadline - began, 0.01)
        reply = await ask_leader(
            self._session,
            self._metadata,
            self.queue.topic,
            self.queue.partition,
            leader,
            "POST",
            self._path,
            body=in_flight.encoded,
            transaction=None if self._transaction is None else self._transaction.id,
            patience_s=max(_PATIENCE_MIN_S, _PATIENCE_ANSWERS * self._usual_s),
            timeout_s=min(self._session.request_timeout_s + _ANSWER_MARGIN_S, left_s),
        )
        self._usual_s += _USUAL_WEIGHT * (self._clock.monotonic() - began - self._usual_s)
        return reply

    async def _identity(self, in_flight: InFlightBatch) -> tuple[int, int, int]:
        if not self._options.is_idempotent:
            return _NO_IDENTITY
        if self._transaction is None:
            producer_id = await self._producer_ids.get(self._pipeline.generation)
        else:
            producer_id = self._transaction.producer_id
        return producer_id, self._pipeline.epoch, in_flight.sequence

    def _encode(self, in_flight: InFlightBatch, identity: tuple[int, int, int]) -> None:
        if in_flight.identity == identity:
            return
        if in_flight.identity is None:
            producer_id, epoch, sequence = identity
            in_flight.encoded = build_batch(
                in_flight.batch.records,
                codec=self._options.codec,
                timestamp_ms=in_flight.batch.timestamp_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                lists_tags=True,
            )
            if self._transaction is not None:
                in_flight.encoded = with_producer(in_flight.encoded, *identity, in_transaction=True)
        else:
            in_flight.encoded = with_producer(in_flight.encoded, *identity)
        in_flight.identity = identity

    def _read(self, in_flight: InFlightBatch, reply: Reply) -> Stored:
        if reply.status == 202:
            return Stored(NO_OFFSET, None, Durability(self._options.acks, False, False, 0, -1))
        answer = reply.read(bodies.BatchesProduced)
        reported = answer.durability
        durability = Durability(
            reported.acks, reported.committed, reported.fsynced, reported.replicas, answer.leader_epoch
        )
        return Stored(answer.base_offset, answer.timestamp, durability)

    def _learn(self, error: RaftlogError) -> None:
        if isinstance(error, TopicNotFound):
            self._metadata.forget(self.queue.topic)
        self._metadata.correct(self.queue.topic, self.queue.partition, error)


def _has_failed(task: asyncio.Task[int]) -> bool:
    return task.cancelled() or task.exception() is not None
