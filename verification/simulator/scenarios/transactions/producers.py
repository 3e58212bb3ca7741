"""Transactional producers. Several processes use equal ids; they lose their state, stall, and continue after
they were fenced.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from typing import Final

from groups.requests import AddOffsets
from partitions.values import QUORUM
from raftlog.errors import (
    OutcomeForgotten,
    PartitionDecommissioned,
    PartitionNotFound,
    ProducerFenced,
    RaftlogError,
    TopicNotFound,
    TransactionAborted,
    TransactionNotFound,
)
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.types import TopicPartition
from transactions.records import Handle, Participant
from transactions.requests import Done, End, Ended, Join, Open, Opened, Prepare
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.machine import Machine
from verification.simulator.planted_errors import PLANTED
from verification.simulator.scenarios.transactions.clients import OLD_MAX, Story, TransactionClient, Write
from verification.simulator.scenarios.transactions.odds import PASSING, PASSING_PARTITIONS
from verification.simulator.simulated_cluster import SimulatedCluster

PATIENCE_S: Final = 6.0
IN_DOUBT_ODDS: Final = 0.3  # a commit although a batch may be missing
GIVES_UP_ODDS: Final = 0.1  # an end whose outcome is not known yet
AFTER_ODDS: Final = 0.5  # an incarnation that gave up goes on behind its last transaction
PASSING_ODDS: Final = 0.3  # a batch for a partition that may be removed
WAITS_ODDS: Final = 0.6  # after it
JOIN_S: Final = 0.02  # after the end of its transaction
REOPEN_S: Final = 0.6  # before an incarnation that was fenced opens its id again
CLOSED: Final = (ProducerFenced, TransactionAborted, TransactionNotFound)


class Progress(enum.Enum):
    """The outcome of a batch, as far as its producer knows."""

    STORED = enum.auto()
    IN_DOUBT = enum.auto()
    CLOSED = enum.auto()


class TransactionalProducer(TransactionClient):
    """A process that opens one transactional id repeatedly; it trusts every answer."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, transactional_id: str, story: Story, *, prepares: bool
    ) -> None:
        super().__init__(cluster, name, story)
        self._id = transactional_id
        self._prepares = prepares
        self._handle: Handle | None = None
        self._ended: Handle | None = None  # the one before, whose next number is not known
        self._values = 0

    async def run(self) -> None:
        """Run transactions until the run ends. Transactions that stay open at the end are aborted after their
        timeout.
        """
        while self.cluster.is_producing:
            await self.cluster.rest()
            if self._handle is None:
                await self._open()
            else:
                await self.one_transaction(self._handle)
                await asyncio.sleep(self.rng.expovariate(1.0) * self.story.odds.think_s)

    async def _open(self) -> None:
        after = self._ended if self.rng.random() < AFTER_ODDS else None
        try:
            await self.open(timeout_ms=self.story.odds.timeout_ms, after=after)
        except RaftlogError as error:
            if not error.retryable:
                self._ended = None
            await asyncio.sleep(self.rng.expovariate(1.0) * REOPEN_S)

    async def open(self, *, timeout_ms: int, after: Handle | None = None, run_epoch: int = 0) -> Handle:
        """Open the transactional id, which begins the next epoch. Raises ``RaftlogError``."""
        reply = await self.request(
            Open(transactional_id=self._id, timeout_ms=timeout_ms, after=after, run_epoch=run_epoch)
        )
        assert isinstance(reply, Opened)
        self._handle, self._ended = Handle(self._id, reply.producer_id, reply.epoch), None
        return self._handle

    async def one_transaction(self, handle: Handle) -> bool:
        """Run one transaction; returns whether it was committed, as far as this producer knows."""
        odds, rng = self.story.odds, self.rng
        sequences: dict[Participant, int] = {}
        progress = Progress.STORED
        for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, odds.batches_max)):
            await self._disturb(handle)
            target = rng.choice(self.story.targets)
            if odds.removes_partitions and rng.random() < PASSING_ODDS:
                progress = await self._write_passing(handle, sequences)
            elif rng.random() < odds.offsets:
                progress = await self._add_offset(handle, target)
            else:
                progress = await self.write(handle, target, sequences)
            if progress is not Progress.STORED:
                break
        if progress is Progress.CLOSED:
            self._handle = None
            return False
        await self._disturb(handle)
        is_whole = progress is Progress.STORED or rng.random() < IN_DOUBT_ODDS
        if self._prepares and is_whole:
            await self._prepare(handle)
            return False
        return await self.end(handle, is_commit=is_whole and rng.random() >= odds.aborts)

    async def _write_passing(self, handle: Handle, sequences: dict[Participant, int]) -> Progress:
        """Write a batch to a partition that may be removed; then mostly pause, so that the removal can
        happen.
        """
        target = PASSING, self.rng.randrange(PASSING_PARTITIONS)
        progress = await self.write(handle, target, sequences)
        if not self.cluster.is_healed and self.rng.random() < WAITS_ODDS:
            await asyncio.sleep(self.rng.uniform(0.3, 0.9) * self.story.odds.timeout_ms / 1000)
        return progress

    async def write(self, handle: Handle, target: Participant, sequences: dict[Participant, int]) -> Progress:
        """Write one batch, and repeat it until its outcome is known. A batch without a sequence is not
        repeated.
        """
        rng = self.rng
        is_sequenced = rng.random() >= self.story.odds.unsequenced
        count = rng.choice((1, 1, 2, 3))
        values = tuple(f"{self.name}-{self._values + number}" for number in range(count))
        self._values += count
        sequence = sequences.get(target, 0) if is_sequenced else -1
        if is_sequenced:
            sequences[target] = sequence + count
        return await self.write_values(handle, target, values, sequence)

    async def write_values(
        self, handle: Handle, target: Participant, values: tuple[str, ...], sequence: int
    ) -> Progress:
        """Write one batch with these values, as ``write`` does; a ``sequence`` of -1 means no sequence."""
        rng, is_sequenced = self.rng, sequence >= 0
        padding = bytes(rng.randint(0, self.cluster.odds.padding_bytes)) or None
        records = [Record(value=value.encode(), key=padding) for value in values]
        plain = build_batch(records, codec=Codec.NONE, timestamp_ms=1_700_000_000_000)
        data = with_producer(plain, handle.producer_id, handle.epoch, sequence, in_transaction=True)
        write = Write(target, values)
        self.begins(handle)
        self.story.writes.setdefault(handle, []).append(write)

        async def send() -> None:
            write.offset = (await self.send(handle, target, data)).base_offset

        progress = await self._until_known(handle, send, is_repeatable=is_sequenced)
        if is_sequenced:
            self.story.old_batches.append((handle, target, data))
            del self.story.old_batches[:-OLD_MAX]
        self.cluster.trace.note(None, f"{self.name}: {handle} {target} {values} {progress.name}")
        return progress

    async def _until_known(
        self, handle: Handle, attempt: Callable[[], Awaitable[None]], *, is_repeatable: bool
    ) -> Progress:
        began_s, in_doubt = self.cluster.loop.now, False
        while self.cluster.loop.now - began_s < PATIENCE_S:
            try:
                await attempt()
                return Progress.STORED
            except PartitionDecommissioned:
                return Progress.IN_DOUBT
            except (TopicNotFound, PartitionNotFound):
                pass  # that broker's metadata lags
            except CLOSED as error:
                self.judge.closed(handle, error)
                return Progress.CLOSED
            except RaftlogError as error:
                in_doubt |= not error.is_definite and error.details.get("sent") is not False
                if not error.retryable:
                    if PLANTED not in str(error):
                        self.cluster.violated("I12 errors", f"{self.name} in {handle}: {error!r}")
                    return Progress.IN_DOUBT
                if in_doubt and not is_repeatable:
                    return Progress.IN_DOUBT
            await self.pause()
        return Progress.IN_DOUBT

    async def _add_offset(self, handle: Handle, target: Participant) -> Progress:
        """Add an offset of a group to this transaction; repeat the request until the offset is known to be
        stored.
        """
        self.begins(handle)
        request = self.judge.offsets.request(handle, target)

        async def add() -> None:
            await self.add_offset(handle, request)

        progress = await self._until_known(handle, add, is_repeatable=True)
        if not self.cluster.is_healed and self.rng.random() < self.story.odds.late:
            self.story.start(self._add_late(request))
        return progress

    async def _add_late(self, request: AddOffsets) -> None:
        """Add an offset again, perhaps after the end of its transaction: then no committed offset may change
        (T10).
        """
        await asyncio.sleep(self.rng.expovariate(1.0) * self.story.odds.late_s)
        try:
            await self.offsets_asked(
                request, lambda broker: broker.groups.service.ask(request, timeout_ms=TIMEOUT_MS)
            )
        except RaftlogError:
            return

    async def end(self, handle: Handle, *, is_commit: bool) -> bool:
        """End the transaction; mostly repeat the request until the outcome is known. Return whether it is
        committed.
        """
        request = End(transaction=handle, is_commit=is_commit)
        self._handle, self._ended = None, handle
        self.story.old_ends.append(request)
        del self.story.old_ends[:-OLD_MAX]
        if not self.cluster.is_healed and self.rng.random() < self.story.odds.late:
            self.story.start(self._join_late(handle))
        began_s = self.cluster.loop.now
        while self.cluster.loop.now - began_s < PATIENCE_S:
            try:
                reply = await self.request(request)
            except OutcomeForgotten:
                return False
            except RaftlogError as error:
                if not error.retryable or self.rng.random() < GIVES_UP_ODDS:
                    return False
                await self.pause()
                continue
            assert isinstance(reply, Ended)
            if reply.next_epoch >= 0 and self.rng.random() >= self.story.odds.forgets:
                self._handle, self._ended = Handle(self._id, handle.producer_id, reply.next_epoch), None
            return reply.is_committed
        return False

    async def _prepare(self, handle: Handle) -> None:
        """Prepare a transaction: later its sink commits it, or its timeout aborts it."""
        self._handle = None
        try:
            reply = await self.request(
                Prepare(transaction=handle, prepared_ms_max=self.story.odds.prepared_ms)
            )
        except RaftlogError:
            return
        assert isinstance(reply, Done)
        self.story.prepared[self._id] = handle

    async def _disturb(self, handle: Handle) -> None:
        """Send late requests of other transactions while this one is open, or pause for long."""
        odds, rng, story = self.story.odds, self.rng, self.story
        if self.cluster.is_healed:
            return
        if story.old_ends and rng.random() < odds.old_ends:
            story.start(self._repeat(rng.choice(story.old_ends)))
        if story.old_batches and rng.random() < odds.old_ends:
            story.start(self._repeat_batch(*rng.choice(story.old_batches)))
        if rng.random() < odds.stalls:
            await asyncio.sleep(rng.uniform(0.2, 2.0) * odds.timeout_ms / 1000)

    async def _join_late(self, handle: Handle) -> None:
        """Request that a partition takes part in a transaction that is about to end: the request is in time,
        or refused.
        """
        await asyncio.sleep(self.rng.expovariate(1.0) * JOIN_S)
        try:
            await self.request(Join(transaction=handle, partitions=(self.rng.choice(self.story.targets),)))
        except RaftlogError:
            return

    async def _repeat(self, end: End) -> None:
        try:
            await self.request(end)
        except RaftlogError:
            return

    async def _repeat_batch(self, handle: Handle, target: Participant, data: bytes) -> None:
        """Send a batch again. If its transaction has ended, the batch must not be stored (T3)."""
        try:
            await self.send(handle, target, data)
        except RaftlogError:
            return


class WideProducer(TransactionalProducer):
    """Writes to all partitions through one broker, when the scenario calls it."""

    def __init__(self, cluster: SimulatedCluster, name: str, story: Story, machine: Machine) -> None:
        super().__init__(cluster, name, name, story, prepares=False)
        self._machine = machine

    def machine(self) -> Machine:
        """Return the machine whose broker this producer uses."""
        return self._machine

    async def transact(self, *, is_commit: bool, timeout_ms: int = 10_000) -> bool | None:
        """Run one transaction; return whether it was committed, or None if an error occurred before
        its end.
        """
        handle = await self._write_everywhere(timeout_ms)
        return None if handle is None else await self.end(handle, is_commit=is_commit)

    async def leave_open(self, *, timeout_ms: int) -> bool:
        """Begin a transaction that is never ended; return False if an error occurred while it was written."""
        return await self._write_everywhere(timeout_ms) is not None

    async def _write_everywhere(self, timeout_ms: int) -> Handle | None:
        try:
            handle = await self.open(timeout_ms=timeout_ms)
        except RaftlogError:
            return None
        sequences: dict[Participant, int] = {}
        for target in self.story.targets:
            if await self.write(handle, target, sequences) is not Progress.STORED:
                return None
        return handle


class PlainProducer(Client):
    """Writes outside transactions to their partitions: its records become visible once earlier transactions
    are decided.
    """

    def __init__(self, cluster: SimulatedCluster, name: str, story: Story) -> None:
        super().__init__(cluster, name)
        self._story = story
        self._values = 0

    async def run(self) -> None:
        """Send one record after another, each in one attempt, until the run ends."""
        while self.cluster.is_producing:
            await self.cluster.rest()
            self._values += 1
            write = Write(self.rng.choice(self._story.targets), (f"{self.name}-{self._values}",))
            self._story.plain.append(write)
            data = build_batch(
                [Record(value=write.values[0].encode())], codec=Codec.NONE, timestamp_ms=1_700_000_000_000
            )
            try:
                receipt = await self.append(self.machine(), TopicPartition(*write.target), data, QUORUM)
            except RaftlogError:
                await self.pause()
            else:
                write.offset = receipt.base_offset
            await asyncio.sleep(self.rng.expovariate(1.0) * 4 * self._story.odds.think_s)
