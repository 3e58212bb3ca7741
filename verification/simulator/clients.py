"""Runs clients of a simulated cluster. They produce, read and query, and record the responses in a history.

Decides: the behaviour of a client and which of its errors are definite. Leaves to others: the checks
(``chaos.checkers``). A client uses any broker's gateway, as the HTTP layer does; requests and responses take
time, and a response may be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from broker.broker import Broker
from chaos.history import Look, Outcome, Poll, Send
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.values import QUORUM, Acks, AcksKind, AppendReceipt, FetchRequest, FetchResult, Start
from raftlog.errors import (
    CommitUnknown,
    ConnectionLost,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PartitionNotFound,
    ProducerFenced,
    RaftlogError,
    TopicNotFound,
)
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition
from verification.simulator.machine import SECRET, Machine
from verification.simulator.simulated_cluster import SimulatedCluster

Result = TypeVar("Result")
TOPIC: Final = "orders"
TIMEOUT_MS: Final = 1500
PATIENCE_S: Final = 6.0
PAUSE_S: Final = 0.05
LOST_ANSWER_ODDS: Final = 0.01
QUORUM_ODDS: Final = 0.8
NEXT_EPOCH_ODDS: Final = 0.5  # for a producer that has given up, instead of another id
GIVES_UP_ODDS: Final = 0.05  # after a refusal, which must be definite
REPLACED_ODDS: Final = 0.15  # a producer ends, and its next incarnation starts

Incarnation = tuple[int, int]
"""Producer id and epoch. A client that changes either begins with sequence 0 again."""


class Client:
    """Base class of all clients."""

    lost_answer_odds = LOST_ANSWER_ODDS

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.rng = cluster.rng(f"client {name}")
        self.process = cluster.next_process()
        self._watermarks: dict[tuple[TopicPartition, int], int] = {}

    async def ask(
        self,
        machine: Machine,
        ask: Callable[[Broker], Awaitable[Result]],
        check: Callable[[Broker, Result], None] | None = None,
    ) -> Result:
        """Send one request to one broker and return the response. Raises ``ConnectionLost`` if there is none.

        ``check`` is called with the response at the moment at which the broker gives it.
        """
        network = self.cluster.network

        async def checked(broker: Broker) -> Result:
            answer = await ask(broker)
            if check is not None:
                check(broker, answer)
            return answer

        await asyncio.sleep(network.latency())
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000 + 4.0):
                result = await machine.call(checked)
        except TimeoutError:
            raise ConnectionLost("no answer came", sent=True) from None
        await asyncio.sleep(network.latency())
        if not network.is_calm and self.rng.random() < self.lost_answer_odds:
            raise ConnectionLost("the answer was lost", sent=True)
        return result

    def machine(self) -> Machine:
        """Return a random broker."""
        return self.rng.choice(self.cluster.members)

    async def append(
        self, machine: Machine, target: TopicPartition, data: bytes, acks: Acks = QUORUM
    ) -> AppendReceipt:
        """Send a batch in one attempt; return the response."""
        return await self.ask(
            machine,
            lambda broker: broker.gateway.append(target, data, acks=acks, timeout_ms=TIMEOUT_MS),
            partial(self.cluster.responses.appended, target, data, acks),
        )

    async def pause(self) -> None:
        """Wait before a retry."""
        await asyncio.sleep(PAUSE_S * (0.5 + self.rng.random()))

    async def fetch(self, target: TopicPartition, position: int, *, wait_ms: int) -> FetchResult:
        """Read once from a random broker. Raises the errors of the broker."""
        request = FetchRequest(position=Offset(position), bytes_max=4096, wait_ms=wait_ms)
        result: FetchResult = await self.ask(
            self.machine(),
            lambda broker: broker.gateway.fetch(target, request),
            partial(self.cluster.responses.read, target),
        )
        key = (target, result.leader_epoch)
        if result.high_watermark < self._watermarks.get(key, 0):
            detail = f"{result.high_watermark} after {self._watermarks[key]} in epoch {result.leader_epoch}"
            self.cluster.violated("I13 the high watermark rises", f"{target}: {detail}")
        self._watermarks[key] = result.high_watermark
        self.cluster.log_starts.answered(target, result)
        return result

    async def poll(self, partition: int, position: int, *, wait_ms: int) -> tuple[Poll, int]:
        """Fetch once; return a ``Poll`` for the history, and the position of the next read."""
        invoked = self.cluster.loop.now
        result = await self.fetch(self.cluster.checked[partition], position, wait_ms=wait_ms)
        return self.polled(partition, position, invoked, result), result.next_offset

    def polled(self, partition: int, position: int, invoked: float, result: FetchResult) -> Poll:
        """Convert a response to a ``Poll`` for the history, and the position of the next read."""
        records = tuple(
            (record.offset, (record.value or b"").decode())
            for batch in split_batches(result.data)
            if not batch.header.is_control
            for record in read_records(batch)
            if record.offset >= position
        )
        return Poll(
            process=self.process,
            partition=partition,
            invoked_s=invoked,
            completed_s=self.cluster.loop.now,
            records=records,
        )

    def deleted(self, partition: int, position: int, error: OffsetOutOfRange) -> Poll:
        """Record that the record at the reader's position is deleted: the reader learns only the
        log start.
        """
        start = int(str(error.details["start"]))
        if start <= position:
            self.cluster.violated("I13 a position stays valid", f"{self.name}: {error}")
        self.cluster.log_starts.reported(self.cluster.checked[partition], start)
        now = self.cluster.loop.now
        return Poll(
            process=self.process,
            partition=partition,
            invoked_s=now,
            completed_s=now,
            records=(),
            log_start=start,
        )


class Producer(Client):
    """An idempotent producer of one partition. It resends a batch as equal bytes until the outcome is known,
    or gives up.

    After giving up it continues with another producer id, or with the next epoch. No batch of the former id
    or epoch may be stored later.
    """

    def __init__(self, cluster: SimulatedCluster, name: str, partition: int, *, has_id: bool) -> None:
        super().__init__(cluster, name)
        self._target = TopicPartition(TOPIC, partition)
        self._has_id = has_id
        self._think_s = cluster.odds.think_s
        self._acks_rng = cluster.rng(f"acks of {name}")
        self._bodies_rng = cluster.rng(f"bodies of {name}")
        self._sequence = 0
        self._incarnation: Incarnation = (-1, -1)
        self._replaced: tuple[Incarnation, int] | None = None  # and its first unused sequence
        self._is_known = False  # a batch was acknowledged, so several may be in flight
        self._values = 0

    async def run(self) -> None:
        """Produce batches until the run ends."""
        cluster = self.cluster
        under_way: list[asyncio.Task[None]] = []
        while cluster.is_producing:
            await cluster.rest()
            if self._has_id and self._is_known:
                await self._perhaps_replace(under_way)
            if self._has_id and self._incarnation[0] < 0:
                await self._get_id()
                continue
            limit = cluster.odds.pipeline if self._has_id and self._is_known else 1
            body = self._next_body()
            task = asyncio.get_running_loop().create_task(self._send(*body))
            under_way.append(task)
            while len(under_way) >= limit:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                under_way = [task for task in under_way if not task.done()]
            await asyncio.sleep(self.rng.expovariate(1.0) * self._think_s)
        for task in under_way:
            await task

    async def _get_id(self) -> None:
        try:
            ids = await self.ask(
                self.machine(),
                lambda broker: broker.controller.allocate_producer_ids(1, TIMEOUT_MS),
                self.cluster.responses.gave_ids,
            )
        except RaftlogError:
            await self.pause()
            return
        producer_id = ProducerIdCipher(SECRET).id_of(ids.start)
        self._begin((producer_id, 0))
        self.cluster.given_producer_id(producer_id)

    def _begin(self, incarnation: Incarnation) -> None:
        self._incarnation = incarnation
        self._sequence = 0
        self._is_known = False

    async def _perhaps_replace(self, under_way: list[asyncio.Task[None]]) -> None:
        """Sometimes begin the next epoch once all outcomes are known; a later call sends a late batch of the
        former epoch.
        """
        if self._replaced is not None:
            (incarnation, unused), self._replaced = self._replaced, None
            if self._sequence >= unused:  # else a deposed leader may take it for a batch that it knows
                await self._send_late(incarnation)
        elif self._bodies_rng.random() < REPLACED_ODDS:
            incarnation = self._incarnation
            await asyncio.gather(*under_way)
            if incarnation == self._incarnation:
                self._replaced = incarnation, self._sequence
                self._begin((incarnation[0], incarnation[1] + 1))

    async def _send_late(self, incarnation: Incarnation) -> None:
        """Send a batch of a former epoch, with the sequence after its last batch: the brokers must refuse the
        batch.
        """
        data = self._batch([f"{self.name}-late-{incarnation[1]}"], incarnation, self._sequence)
        with contextlib.suppress(RaftlogError):
            receipt = await self.append(self.machine(), self._target, data)
            self.cluster.violated("I25 sequences without break", f"{incarnation} is over, and yet {receipt}")

    def _next_body(self) -> tuple[int, Incarnation, bytes, list[str]]:
        """Return the body of the next request: mostly one batch; with at most one request in flight sometimes
        several.
        """
        count = self._bodies_rng.choice((1, 1, 2, 3)) if self.cluster.odds.pipeline == 1 else 1
        batches = [self._next_batch() for _ in range(count)]
        values = [value for _, some in batches for value in some]
        return self.process, self._incarnation, b"".join(data for data, _ in batches), values

    def _next_batch(self) -> tuple[bytes, list[str]]:
        values = []
        for _ in range(self.rng.choice((1, 1, 2, 5))):
            self._values += 1
            values.append(f"{self.name}-{self._values}")
        data = self._batch(values, self._incarnation, self._sequence)
        self._sequence += len(values)
        return data, values

    def _batch(self, values: list[str], incarnation: Incarnation, sequence: int) -> bytes:
        padding = bytes(self.rng.randint(0, self.cluster.odds.padding_bytes)) or None
        return build_batch(
            [Record(value=value.encode(), key=padding) for value in values],
            codec=Codec.NONE,
            timestamp_ms=1_700_000_000_000,
            producer_id=incarnation[0],
            producer_epoch=incarnation[1],
            base_sequence=sequence if self._has_id else -1,
        )

    async def _send(self, process: int, incarnation: Incarnation, data: bytes, values: list[str]) -> None:
        invoked = self.cluster.loop.now
        outcome, receipt = await self._until_known(data, incarnation, invoked)
        self._remember(process, values, invoked, outcome, receipt)
        self.cluster.trace.note(None, f"{values} {outcome.value} {receipt and receipt.base_offset}")
        if incarnation != self._incarnation:
            return
        if outcome is Outcome.ACKNOWLEDGED:
            self._is_known = True
        else:  # the sequence has a hole now, or may have one
            self._replaced = None
            goes_on = self._has_id and self._bodies_rng.random() < NEXT_EPOCH_ODDS
            self._begin((incarnation[0], incarnation[1] + 1) if goes_on else (-1, -1))
            self.process = self.cluster.next_process()

    def _remember(
        self, process: int, values: list[str], invoked: float, outcome: Outcome, receipt: AppendReceipt | None
    ) -> None:
        for number, value in enumerate(values):
            send = Send(
                process=process,
                partition=self._target.partition,
                value=value,
                invoked_s=invoked,
                completed_s=self.cluster.loop.now,
                outcome=outcome,
                offset=None if receipt is None else receipt.base_offset + number,
            )
            self.cluster.history.sends.append(send)

    async def _until_known(
        self, data: bytes, incarnation: Incarnation, invoked: float
    ) -> tuple[Outcome, AppendReceipt | None]:
        in_doubt = False
        acks = self._draw_acks()
        while True:
            try:
                receipt = await self.append(self.machine(), self._target, data, acks)
            except (TopicNotFound, PartitionNotFound):
                pass  # that broker's metadata lags
            except (OutOfOrderSequence, ProducerFenced) as error:
                self._check_refusal(error, incarnation)
            except (CommitUnknown, ConnectionLost) as error:
                in_doubt |= error.details.get("sent") is not False
                if error.details.get("committed") is True and not self.cluster.odds.deletes_records:
                    return Outcome.ACKNOWLEDGED, None
                if in_doubt and not self._has_id:
                    break
            except RaftlogError as error:
                in_doubt |= not error.is_definite
                if not error.retryable:
                    self.cluster.violated("I12 errors", f"{self.name}: {error!r}")
                    break
            else:
                if acks.kind is not AcksKind.LEADER:
                    return Outcome.ACKNOWLEDGED, receipt
                acks, in_doubt = QUORUM, True
                continue
            late = self.cluster.loop.now - invoked > PATIENCE_S
            if (
                late
                or incarnation != self._incarnation
                or (not in_doubt and self._bodies_rng.random() < GIVES_UP_ODDS)
            ):
                break
            await self.pause()
        return (Outcome.UNKNOWN if in_doubt else Outcome.FAILED), None

    def _check_refusal(self, error: RaftlogError, incarnation: Incarnation) -> None:
        """Check a refusal: of a sequence only if an earlier batch is missing, of an epoch only if a later one
        exists.
        """
        others = self.cluster.odds.pipeline > 1 and isinstance(error, OutOfOrderSequence)
        if incarnation == self._incarnation and not others:
            self.cluster.violated("I12 errors", f"{self.name} in {incarnation}: {error!r}")

    def _draw_acks(self) -> Acks:
        """Draw the acknowledgements to require: mostly a quorum. A producer with an id may require fewer or
        more.
        """
        if not self._has_id or self._acks_rng.random() < QUORUM_ODDS:
            return QUORUM
        odds = self.cluster.odds
        kinds = [Acks(AcksKind.LEADER), Acks(AcksKind.EVERY)]
        if odds.replicas > 1 and "reassign" not in odds.timed:  # the minimum number of replicas
            kinds.append(Acks(AcksKind.COUNT, odds.replicas))
        return self._acks_rng.choice(kinds)


class Consumer(Client):
    """Reads one partition from its start on, and sometimes queries its end."""

    def __init__(self, cluster: SimulatedCluster, name: str, partition: int) -> None:
        super().__init__(cluster, name)
        self._partition = partition
        self._position = 0

    async def run(self) -> None:
        """Read until the run ends."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            try:
                await (self._look() if self.rng.random() < 0.3 else self._read())
            except OffsetOutOfRange as error:
                poll = self.deleted(self._partition, self._position, error)
                self.cluster.history.polls.append(poll)
                self._position = poll.log_start
            except RaftlogError:
                await self.pause()

    async def _read(self) -> None:
        poll, self._position = await self.poll(
            self._partition, self._position, wait_ms=self.rng.choice((0, 100, 400))
        )
        self.cluster.history.polls.append(poll)
        if not poll.records:
            await self.pause()

    async def _look(self) -> None:
        invoked = self.cluster.loop.now
        target = TopicPartition(TOPIC, self._partition)
        offset, _ = await self.ask(
            self.machine(),
            lambda broker: broker.gateway.offset_at(target, Start.LATEST),
            partial(self.cluster.responses.looked, target),
        )
        self.cluster.history.looks.append(
            Look(
                partition=self._partition,
                invoked_s=invoked,
                completed_s=self.cluster.loop.now,
                high_watermark=offset,
            )
        )
        await self.pause()
