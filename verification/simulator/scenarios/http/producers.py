"""Producers of ``raftlog.client``: random options, random sends, and a check of every receipt.

Decides: the checks of a future (C1), of a receipt (C2) and of ``flush`` and ``close`` (C3, C5). Leaves
to others: order, duplicates and losses (``chaos.checkers``).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any, Final

from chaos.history import Outcome
from raftlog import aio
from raftlog.client.receipts import Batch, PendingReceipt, Receipt
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.records.keys import partition_for_key
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.scenarios.http.simulated_client import LOOK_S, PATIENCE_S, SimulatedClient

_ONCE: Final = "C1 a send has one outcome"
_RECEIPT: Final = "C2 a receipt names the record as it was sent"
_FLUSH: Final = "C3 flush and close leave nothing open"
_LEAK: Final = "C5 a closed client leaks nothing"
SENDS_OF_ONE_PRODUCER: Final = 150
SLOW_S: Final = 0.2  # the jitter of links on which a round trip may take 0.4 s
_UNDESERVED: Final = (
    "internal_error",
    "out_of_order_sequence",
    "producer_fenced",
    "corrupt_batch",
    "invalid_request",
)
"""Codes of errors that a client with one producer and valid records must never get."""


@dataclass(slots=True, eq=False)
class Sent:
    """One record that was sent and whose outcome is not known yet."""

    value: str
    key: str | None
    partition: int | None  # its requested partition
    invoked: float
    process: int
    acks: str
    pending: PendingReceipt | None = None
    reported: tuple[Receipt | None, RaftlogError | None] | None = None
    times: int = 0


class ShippedProducer(SimulatedClient):
    """One client, which creates one producer after another."""

    def __init__(self, side: HttpSide, name: str) -> None:
        super().__init__(side, name)
        self._sent: list[Sent] = []
        self._acks = "quorum"
        self._is_hasty = False
        self._stray: dict[Batch, int] = {}  # batches that may arrive late, with a process for each

    async def run(self) -> None:
        """Produce until the run ends; then check that all outcomes are known and no resource leaks."""
        client = self.client()
        await client.open()
        while self.cluster.is_producing:
            await self._one_producer(client)
        await self._last_word(client)
        await client.close("5s")
        await self.check_nothing_is_left()

    def _options(self) -> dict[str, Any]:
        rng = self.rng
        every = "reassign" not in self.cluster.odds.timed
        self._acks = rng.choice(("quorum", "quorum", "quorum", "1", "every" if every else "quorum", "0", "0"))
        options = {
            "acks": self._acks,
            "linger": rng.choice((0, "5ms", "20ms")),
            "batch_bytes": rng.choice((200, 400, 16 << 10)),
            "buffer_bytes": rng.choice((600, 2000, 1 << 20)),
            "compression": rng.choice(("none", "none", "gzip", "lz4")),
            "partitioner": rng.choice(("sticky", "round_robin")),
            "delivery_timeout": rng.choice(("300ms", "1s", "5s", "20s")),
        }
        self._is_hasty = options["delivery_timeout"] == "300ms"
        return options

    async def _one_producer(self, client: aio.Client) -> None:
        """Use one producer, and close it with a ``with`` block, after a flush, or with a short timeout."""
        topic = self.cluster.checked[0].topic
        producer = client.producer(topic, **self._options())
        self.number = self.cluster.next_process()
        self._sent = []
        sends = self.rng.choice((3, 30, SENDS_OF_ONE_PRODUCER))
        way = self.rng.choice(("with", "flush", "close", "close soon", "close at once"))
        with contextlib.suppress(ExceptionGroup):
            if way == "with":
                async with producer:
                    await self._produce(producer, sends)
            else:
                await self._produce(producer, sends)
                await self._recovers(producer)
        if way == "flush":
            await producer.flush()
            self._check_all_known("flush")
        await producer.close({"close soon": "100ms", "close at once": "0ms"}.get(way, "30s"))
        self._check_all_known(f"{way}, close")
        self._check_empty(producer)

    async def _produce(self, producer: aio.Producer, sends: int) -> None:
        manner = self.rng.choice(("one by one", "many", "bursts", "bursts", "bursts"))
        while self.cluster.is_producing and len(self._sent) < sends:
            count = self.rng.randint(2, 20) if manner == "bursts" else 1
            for _ in range(count):
                nowait = self.rng.random() < 0.1
                await self._send(producer, waits=manner == "one by one", nowait=nowait)
            if self.rng.random() < 0.02:
                await producer.flush()
                self._check_all_known("flush")
            await self.think()

    async def _recovers(self, producer: aio.Producer) -> None:
        """Check that a producer which was used during the faults works after healing (L8)."""
        if self.cluster.is_producing or self._acks in ("0", "1"):
            return
        if self._is_hasty and self.cluster.odds.network.jitter_s >= SLOW_S:
            return  # on such links finding the leader and committing take as long
        deadline = self.cluster.loop.now + PATIENCE_S
        while self.cluster.loop.now < deadline:
            await self._send(producer, waits=True, nowait=False)
            last = self._sent[-1] if self._sent else None
            if last is not None and last.reported is not None and last.reported[0] is not None:
                return
            await asyncio.sleep(10 * LOOK_S)
        detail = f"{self.name} cannot send any more: {self._sent[-1:]}"
        self.cluster.violated("L8 healed clients work", detail)

    async def _send(self, producer: aio.Producer, *, waits: bool, nowait: bool) -> None:
        rng, partitions = self.rng, len(self.cluster.checked)
        key = rng.choice((None, None, f"key {rng.randrange(20)}"))
        named = rng.randrange(partitions) if rng.random() < 0.2 else None
        tags = rng.choice(((), (), ("blue",), ("red", "blue"), ("green",)))
        record = Sent(self.value(), key, named, self.moment(), self.number, self._acks)

        def on_ack(receipt: Receipt | None, error: RaftlogError | None) -> None:
            self._settled(record, receipt, error)

        try:
            if nowait:
                record.pending = producer.send_nowait(
                    record.value, key=key, partition=named, tags=tags, on_ack=on_ack
                )
            else:
                record.pending = await producer.send(
                    record.value, key=key, partition=named, tags=tags, on_ack=on_ack
                )
        except RaftlogError as error:
            if record.times:
                self.cluster.violated(_ONCE, f"{record.value} was refused and settled: {error!r}")
            if isinstance(error, InvalidRequest):
                self.cluster.violated("I12 errors", f"{self.name}: {error!r}")
            return
        self._sent.append(record)
        self._write_down(record)
        if waits:
            await self._wait_for(record)

    async def _wait_for(self, record: Sent) -> None:
        assert record.pending is not None
        try:
            receipt, error = await record.pending, None
        except RaftlogError as failure:
            receipt, error = None, failure
        if (
            record.reported is None
            or record.reported[0] != receipt
            or repr(record.reported[1]) != repr(error)
        ):
            self.cluster.violated(_ONCE, f"{record.value}: {receipt} {error!r}, and {record.reported}")

    def _settled(self, record: Sent, receipt: Receipt | None, error: RaftlogError | None) -> None:
        record.times += 1
        if record.times > 1 or (receipt is None) is (error is None):
            self.cluster.violated(_ONCE, f"{record.value} for the {record.times}. time: {receipt} {error!r}")
            return
        record.reported = (receipt, error)
        if receipt is not None:
            self._check_receipt(record, receipt)
        if error is not None and error.code in _UNDESERVED:
            self.cluster.violated("I12 errors", f"{self.name}: {record.value} {error!r}")
        self._write_down(record)

    def _write_down(self, record: Sent) -> None:
        if record.reported is None or record.pending is None:
            return
        receipt, error = record.reported
        partition = record.pending._batch.partition
        offset = None
        if receipt is not None and record.acks in ("quorum", "every"):
            outcome, offset = Outcome.ACKNOWLEDGED, receipt.offset
        elif error is not None and error.is_definite:
            outcome = Outcome.FAILED
        else:
            outcome = Outcome.UNKNOWN
        process = record.process
        if record.acks == "0" and outcome is Outcome.UNKNOWN and error is not None:
            # Its response never came, and no sequence keeps it before later sends.
            process = self._stray.setdefault(record.pending._batch, self.cluster.next_process())
        self.sent(process, partition, record.value, record.invoked, outcome, offset)

    def _check_receipt(self, record: Sent, receipt: Receipt) -> None:
        wanted = record.partition
        if wanted is None and record.key is not None:
            wanted = partition_for_key(record.key.encode(), len(self.cluster.checked))
        durability = receipt.durability
        is_right = receipt.topic == self.cluster.checked[0].topic and durability.acks == record.acks
        is_right = is_right and wanted in (None, receipt.partition)
        if record.acks in ("quorum", "every"):
            committed = self.committed(receipt.partition)
            row = None if committed is None else committed.at(receipt.offset)
            if committed is not None and receipt.offset >= committed.known_from:
                key = None if record.key is None else record.key.encode()
                found = None if row is None else (row.key, row.value, row.timestamp_ms)
                is_right = is_right and found == (key, record.value.encode(), receipt.timestamp_ms)
            is_right = (
                is_right and durability.committed and durability.replicas > 0 and durability.leader_epoch > 0
            )
        elif record.acks == "0":
            is_right = is_right and receipt.offset == -1
        if not is_right:
            self.cluster.violated(_RECEIPT, f"{self.name} sent {record}, and got {receipt}")

    def _check_all_known(self, when: str) -> None:
        waiting = [one.value for one in self._sent if one.pending is None or not one.pending.done()]
        untold = [one.value for one in self._sent if one.times != 1]
        if waiting or untold:
            self.cluster.violated(_FLUSH, f"{self.name} after {when}: {waiting} {untold}")

    def _check_empty(self, producer: aio.Producer) -> None:
        """Check that a closed producer holds no bytes, no batches and no requests."""
        buffer, senders = producer._buffer, producer._senders.values()
        held = {
            "bytes": buffer._used_bytes,
            "batches": len(buffer.unfinished),
            "waiting": sum(not waiter.done() for waiter in producer._waiting_for_room),
            "attempts": sum(len(sender._attempts) for sender in senders),
            "batches in flight": sum(len(sender._pipeline._in_flight) for sender in senders),
            "queues": len(producer._waiting()),
        }
        if any(held.values()):
            self.cluster.violated(_LEAK, f"{self.name}: {held}")

    async def _last_word(self, client: aio.Client) -> None:
        """Check that after healing every send is acknowledged within a short time."""
        topic = self.cluster.checked[0].topic
        self._acks, self.number = "quorum", self.cluster.next_process()
        producer = client.producer(topic, delivery_timeout="20s")
        self._sent = []
        began = self.cluster.loop.now
        for _ in range(3):
            await self._send(producer, waits=False, nowait=False)
        await producer.flush()
        bad = [one for one in self._sent if one.reported is None or one.reported[0] is None]
        took_s = self.cluster.loop.now - began
        if bad or len(self._sent) < 3 or took_s > PATIENCE_S:
            detail = f"{self.name}: {bad} of {len(self._sent)}, after {took_s:g} s"
            self.cluster.violated("L8 healed clients work", detail)
        await producer.close()
        self._check_empty(producer)
        await self._single(client, topic)

    async def _single(self, client: aio.Client, topic: str) -> None:
        """Send one record by ``client.send``, as most users do, and wait for its receipt."""
        for _ in range(2):
            value, key, invoked = self.value(), f"key {self.rng.randrange(5)}", self.moment()
            receipt = await client.send(topic, value, key=key)
            record = Sent(value, key, None, invoked, self.number, "quorum")
            self._check_receipt(record, receipt)
            self.sent(self.number, receipt.partition, value, invoked, Outcome.ACKNOWLEDGED, receipt.offset)
            await asyncio.sleep(LOOK_S)
