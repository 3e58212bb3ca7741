"""Loads real brokers over plain HTTP, and records exactly what its clients saw.

Decides: which values are sent and read, how long a client retries, and which responses are definite failures.
Leaves to others: the faults (the caller) and the checks (``checkers``).

A send is one batch with a producer id and a sequence, and all its retries: the identical bytes, to any
broker, until a broker responds. A retry is never another send, so a value at two offsets is an anomaly.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import TracebackType
from typing import Self

from chaos.at_rest import final_look, held_back, open_transactions, until_none
from chaos.history import History, Look, Outcome, Poll, Send
from chaos.http_client import Body, Client, Page
from chaos.register_load import RegisterLoad
from chaos.transaction_load import TransactionLoad
from raftlog.errors import RaftlogError
from raftlog.testing.waits import LIMIT_S, stacks, states


class WorkloadFailed(Exception):
    """The load could not start in time, or its final read could not finish in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The amount of load, and how long its clients wait."""

    producers: int = 6
    readers_per_partition: int = 1
    records_max: int = 3  # in one send
    pause_ms_max: int = 100  # between two sends of one producer
    send_s: float = LIMIT_S  # time after which a send without a response is given up
    final_read_s: float = LIMIT_S
    live_partitions: int | None = None  # partitions that producers use at a time (None: all)
    rotate_s: float = 60.0  # time after which producers use the next partition
    registers: int = 0  # committed offsets that are written at a time, and the number of their readers
    transactions: int = 0  # producers of transactions
    transaction_pause_ms_max: int = 300  # between two transactions of one producer
    at_rest_s: float = LIMIT_S  # time after the load within which all transactions must have ended


class Workload:
    """Clients on a separate thread, while the caller's thread injects faults.

    ::

        with Workload(cluster.urls, "orders", partitions=3, seed=7) as load:
            cluster.kill(2)
        assert check(load.history) == []

    Leaving the block stops the producers, reads every partition to its end and completes the history.
    """

    def __init__(
        self, urls: Sequence[str], topic: str, *, partitions: int, seed: int, shape: Shape | None = None
    ) -> None:
        self.history = History(has_final_read=False)
        self.refusals: Counter[str] = Counter()  # retryable responses, by their code
        self.surprises: list[str] = []  # responses that no client should ever get
        self._urls = list(urls)
        self._topic = topic
        self._partitions = partitions
        self._rng = random.Random(seed)
        self._shape = shape or Shape()
        self._processes = count()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._failure: BaseException | None = None
        self._acknowledged = 0
        self._begun_s = time.monotonic()
        self._transactions = self._transaction_load()

    @property
    def acknowledged(self) -> int:
        """The number of values acknowledged so far."""
        return self._acknowledged

    @property
    def transactions(self) -> int:
        """The number of transactions committed so far."""
        return self._transactions.committed

    def wait_for_acknowledged(self, more: int, *, within_s: float = LIMIT_S) -> None:
        """Return once ``more`` further values have been acknowledged. Raises ``WorkloadFailed``."""
        goal = self._acknowledged + more
        deadline = time.monotonic() + within_s
        while self._acknowledged < goal:
            if not self._thread.is_alive():
                raise WorkloadFailed(f"the clients ended early: {self._failure!r}")
            if time.monotonic() > deadline:
                raise WorkloadFailed(
                    f"{goal - self._acknowledged} of {more} acknowledgements are missing after {within_s} s; "
                    f"refusals: {dict(self.refusals)}\n{states()}\n{stacks()}"
                )
            time.sleep(0.005)

    def start(self) -> None:
        """Start the clients on their thread."""
        self._thread.start()

    def stop(self) -> History:
        """Stop the producers, read all partitions again, and return the history."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise WorkloadFailed(f"the clients ended early: {self._failure!r}") from self._failure
        return self.history

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._shape = Shape(final_read_s=0, send_s=0)
            self._stopping.set()
            self._thread.join()

    # Methods on the clients' thread.

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # raised by ``stop`` and by waits
            self._failure = error

    async def _main(self) -> None:
        registers = RegisterLoad(self.history, self._topic, self._stopping)
        async with asyncio.TaskGroup() as group:
            for number in range(self._shape.producers):
                group.create_task(self._with_client(partial(self._produce, binary=number % 2 == 0)))
            for partition in range(self._partitions):
                for number in range(self._shape.readers_per_partition):
                    follow = partial(self._follow, partition=partition, binary=(partition + number) % 2 == 0)
                    group.create_task(self._with_client(follow))
            group.create_task(self._with_client(self._watch_ends))
            for number in range(self._shape.transactions):
                group.create_task(self._transact(number))
            if self._shape.transactions:
                group.create_task(self._with_client(self._follow_all))
            for number in range(self._shape.registers):
                group.create_task(self._with_client(partial(registers.write, writer=number)))
                group.create_task(self._with_client(registers.read))
        if self._shape.transactions:
            self._look_at_rest()
        await self._with_client(self._read_everything)
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(self._client([url])) for url in self._urls]
            if not await registers.read_all(clients, time.monotonic() + self._shape.final_read_s):
                raise WorkloadFailed("a committed offset could not be read through a broker")

    async def _with_client(self, work: Callable[[Client], Awaitable[None]]) -> None:
        async with self._client(self._urls) as client:
            await work(client)

    def _client(self, urls: Sequence[str]) -> Client:
        return Client(urls, self._topic, random.Random(self._rng.getrandbits(64)))

    async def _produce(self, client: Client, binary: bool) -> None:
        while not self._stopping.is_set():
            producer_id = await self._producer_id(client)
            if producer_id is not None:
                await self._produce_as(client, next(self._processes), producer_id, binary)

    async def _producer_id(self, client: Client) -> int | None:
        try:
            return await client.producer_id()
        except RaftlogError as error:
            await self._refused(client, error)
            return None

    async def _produce_as(self, client: Client, process: int, producer_id: int, binary: bool) -> None:
        """Send batches as one process until the load stops.

        Ends earlier if the outcome of a send is unknown, because the next sequence is then unknown, too.
        """
        sequences = dict.fromkeys(range(self._partitions), 0)
        numbers = count()
        while not self._stopping.is_set():
            partition = self._live_partition(client.rng)
            size = client.rng.randint(1, self._shape.records_max)
            first = sequences[partition]
            values = [f"{process}.{next(numbers)}" for _ in range(size)]
            body = client.body(values, producer_id, first, binary=binary)
            invoked_s = time.monotonic()
            outcome, offset = await self._send(client, partition, body)
            completed_s = time.monotonic()
            for number, value in enumerate(values):
                self.history.sends.append(
                    Send(
                        process=process,
                        partition=partition,
                        value=value,
                        invoked_s=invoked_s,
                        completed_s=completed_s,
                        outcome=outcome,
                        offset=None if offset is None else offset + number,
                    )
                )
            if outcome is Outcome.UNKNOWN:
                return
            if outcome is Outcome.ACKNOWLEDGED:
                self._acknowledged += size
                sequences[partition] = first + size
            await asyncio.sleep(client.rng.uniform(0, self._shape.pause_ms_max / 1000))

    def _live_partition(self, rng: random.Random) -> int:
        live = self._shape.live_partitions or self._partitions
        turns = int((time.monotonic() - self._begun_s) / self._shape.rotate_s)
        return (turns + rng.randrange(live)) % self._partitions

    async def _send(self, client: Client, partition: int, body: Body) -> tuple[Outcome, int | None]:
        """Send one batch with its retries, until a definite response or until ``send_s`` has passed."""
        deadline = time.monotonic() + self._shape.send_s
        in_doubt = False
        while True:
            try:
                return Outcome.ACKNOWLEDGED, await client.produce(partition, body)
            except RaftlogError as error:
                in_doubt = in_doubt or not error.is_definite
                goes_on = await self._refused(client, error)
            if not goes_on or time.monotonic() > deadline or self._shape.send_s == 0:
                return (Outcome.UNKNOWN if in_doubt else Outcome.FAILED), None

    async def _follow(self, client: Client, partition: int, binary: bool) -> None:
        """Read one partition from its start, and then new records until the load stops."""
        process, offset = next(self._processes), 0
        while not self._stopping.is_set():
            invoked_s = time.monotonic()
            try:
                page = await client.fetch(partition, offset, wait_ms=500, binary=binary)
            except RaftlogError as error:
                await self._refused(client, error)
                continue
            if page.records:
                self.history.polls.append(_poll(process, partition, invoked_s, page))
            offset = page.next_offset

    async def _follow_all(self, client: Client) -> None:
        """Read all partitions in turn as one process, so that the checkers can detect torn transactions."""
        process, offsets = next(self._processes), dict.fromkeys(range(self._partitions), 0)
        while not self._stopping.is_set():
            for partition, offset in offsets.items():
                invoked_s = time.monotonic()
                try:
                    page = await client.fetch(partition, offset, wait_ms=0, binary=partition % 2 == 0)
                except RaftlogError as error:
                    await self._refused(client, error)
                    continue
                if page.records:
                    self.history.polls.append(_poll(process, partition, invoked_s, page))
                offsets[partition] = page.next_offset
            await asyncio.sleep(client.rng.uniform(0, 0.6))

    def _transaction_load(self) -> TransactionLoad:
        return TransactionLoad(
            history=self.history,
            topic=self._topic,
            stopping=self._stopping,
            processes=self._processes,
            partition=self._live_partition,
            refused=self._refused,
            pause_s_max=self._shape.transaction_pause_ms_max / 1000,
            patience_s=lambda: self._shape.send_s,
        )

    async def _transact(self, producer: int) -> None:
        async with self._client(self._urls) as client, self._client(self._urls) as rival:
            await self._transactions.produce(client, rival, producer)

    def _look_at_rest(self) -> None:
        """Wait until every transaction has ended, and record a look at the end of each partition."""
        if not self._shape.final_read_s:
            return  # the run was aborted
        url = self._urls[0]
        try:
            left = until_none(lambda: open_transactions(url, self._topic), self._shape.at_rest_s)
            until_none(lambda: held_back(url, self._topic, self._partitions), self._shape.at_rest_s)
            looks = [final_look(url, self._topic, partition) for partition in range(self._partitions)]
        except OSError as error:
            raise WorkloadFailed(f"the ends of the partitions could not be read at {url}: {error}") from error
        self.history.final_looks += looks
        if left:
            raise WorkloadFailed(f"transactions are still open: {', '.join(left)}")
        for look in looks:
            if look.last_stable != look.high_watermark:
                raise WorkloadFailed(
                    f"partition {look.partition}: readers of committed records end at {look.last_stable}, "
                    f"but the log ends at {look.high_watermark}"
                )

    async def _watch_ends(self, client: Client) -> None:
        while not self._stopping.is_set():
            partition = client.rng.randrange(self._partitions)
            invoked_s = time.monotonic()
            try:
                end = await client.end_of(partition)
                stable = await client.end_of(partition, isolation="committed")
            except RaftlogError as error:
                await self._refused(client, error)
                continue
            self.history.looks.append(
                Look(
                    partition=partition,
                    invoked_s=invoked_s,
                    completed_s=time.monotonic(),
                    high_watermark=end,
                    last_stable=stable,
                )
            )
            await asyncio.sleep(client.rng.uniform(0, 0.3))

    async def _read_everything(self, client: Client) -> None:
        """Do the final read. If it does not reach the end of a log, its polls count as ordinary polls."""
        if not self._shape.final_read_s:
            return  # the run was aborted
        seen = dict.fromkeys(range(self._partitions), -1)
        for send in self.history.sends:
            seen[send.partition] = max(seen[send.partition], -1 if send.offset is None else send.offset)
        for poll in self.history.polls:
            seen[poll.partition] = max(seen[poll.partition], poll.records[-1][0])
        polls: list[Poll] = []
        deadline = time.monotonic() + self._shape.final_read_s
        reads = {
            partition: await self._read_to_end(client, partition, highest, deadline, polls)
            for partition, highest in seen.items()
        }
        self.history.has_final_read = all(offset >= end >= 0 for offset, end in reads.values())
        if self.history.has_final_read:
            self.history.final += polls
        else:
            self.history.polls += [poll for poll in polls if poll.records]
        for partition, (offset, end) in reads.items():
            if offset <= seen[partition] or not offset >= end >= 0:
                raise WorkloadFailed(
                    f"partition {partition} could be read up to {offset} only, but offset "
                    f"{seen[partition]} was seen before"
                )

    async def _read_to_end(
        self, client: Client, partition: int, highest: int, deadline: float, polls: list[Poll]
    ) -> tuple[int, int]:
        """Read a partition from the start to beyond ``highest``, the highest offset that was seen, if the log
        has it.

        Returns the offset after the last record, and the end of the log; the end is -1 if it is unknown.
        """
        process, offset, end = next(self._processes), 0, -1
        while offset <= highest or offset < end or end < 0:
            invoked_s = time.monotonic()
            try:
                page = await client.fetch(partition, offset, wait_ms=500, binary=False)
            except RaftlogError as error:
                await self._refused(client, error)
            else:
                polls.append(_poll(process, partition, invoked_s, page))
                offset, end = page.next_offset, page.high_watermark
            if time.monotonic() > deadline:
                break
        return offset, end

    async def _refused(self, client: Client, error: RaftlogError) -> bool:
        """Note a refusal, switch to another broker and pause; return False if a retry cannot succeed."""
        self.refusals[error.code] += 1
        if not error.retryable:
            self.surprises.append(f"{type(error).__name__}: {error} {error.details}")
        client.rotate()
        await asyncio.sleep(client.rng.uniform(0.01, 0.1))
        return error.retryable


def _poll(process: int, partition: int, invoked_s: float, page: Page) -> Poll:
    return Poll(
        process=process,
        partition=partition,
        invoked_s=invoked_s,
        completed_s=time.monotonic(),
        records=page.records,
    )
