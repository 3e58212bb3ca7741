"""Runs transactions over several partitions: committed, aborted, abandoned, decided twice, and taken over.

Decides: how a transaction ends, and the outcome of its sends. Leaves to others: reading (the readers of all
records in ``workload``), and the checks (``checkers``).

A producer uses one transactional id for several incarnations; each incarnation is a process of the history.
Every send has a sequence and is repeated unchanged until its outcome is known; a transaction with a send of
unknown outcome is not committed. If the end of a transaction gets no response, another process opens the id
again.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from chaos.history import Decision, End, History, Open, Outcome, Send
from chaos.http_client import Client, Opened
from raftlog.errors import OutcomeForgotten, ProducerFenced, RaftlogError, TransactionAborted
from raftlog.wire import media_types, transactions

TIMEOUT: Final = "5s"  # of a transaction
PARTITIONS_MAX: Final = 4  # of one transaction
RECORDS_MAX: Final = 3  # of one batch
INCARNATIONS: Final = 5  # of one transactional id
NEVER_AGAIN_ODDS: Final = 0.5  # odds that an id with an abandoned transaction is not used again
CLOSED: Final = (ProducerFenced, TransactionAborted)  # no record of the transaction is or will be visible
_JSON: Final = {"Content-Type": media_types.JSON}

Refused = Callable[[Client, RaftlogError], Awaitable[bool]]


@dataclass(slots=True)
class _Transaction:
    """A transaction of one process, with its sends so far."""

    process: int
    number: int
    opened: Opened
    sends: list[Send] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    is_commit_asked: bool = False
    decided: set[Decision] = field(default_factory=set)
    next_id: str | None = None

    @property
    def is_whole(self) -> bool:
        """True if all sends of the transaction are stored."""
        return all(send.offset is not None for send in self.sends)

    @property
    def outcome(self) -> Outcome:
        """The outcome of the transaction, which is the outcome of all its sends."""
        if Decision.COMMITTED in self.decided:
            return Outcome.ACKNOWLEDGED
        if self.decided or not self.is_commit_asked:
            return Outcome.FAILED
        return Outcome.UNKNOWN


@dataclass(slots=True, kw_only=True)
class TransactionLoad:
    """Transactional producers on the event loop of their workload.

    ``partition`` draws a partition that has load. ``refused`` notes a refusal and returns whether a retry can
    help. ``patience_s`` returns how long a request is repeated.
    """

    history: History
    topic: str
    stopping: threading.Event
    processes: Iterator[int]
    partition: Callable[[random.Random], int]
    refused: Refused
    pause_s_max: float
    patience_s: Callable[[], float]
    committed: int = 0
    _numbers: Iterator[int] = field(default_factory=count)  # of transactions, unique in the history
    _values: Iterator[int] = field(default_factory=count)

    async def produce(self, client: Client, rival: Client, producer: int) -> None:
        """Run one incarnation of the producer after another.

        ``rival`` sends competing requests about the producer's transactions.
        """
        names = count()
        while not self.stopping.is_set():
            name = f"{self.topic}-{producer}-{next(names)}"
            for _ in range(INCARNATIONS):
                if not await self._live(client, rival, name):
                    break

    async def _live(self, client: Client, rival: Client, name: str) -> bool:
        """Run transactions of one incarnation until the id of the next transaction is unknown.

        Returns False if its transactional id is not used again.
        """
        transaction = await self._open(client, name)
        while transaction is not None and not self.stopping.is_set():
            fates = (self._end, self._race, self._take_over, self._leave)
            (fate,) = client.rng.choices(fates, (70, 8, 12, 10))
            is_used_again = await fate(client, rival, transaction)
            self._note(transaction)
            if not is_used_again:
                return False
            transaction = self._following(transaction)
            await asyncio.sleep(client.rng.uniform(0, self.pause_s_max))
        return not self.stopping.is_set()

    def _note(self, ended: _Transaction) -> None:
        """Add the sends of a transaction to the history, with the transaction's outcome."""
        self.committed += ended.outcome is Outcome.ACKNOWLEDGED
        self.history.sends += [replace(send, outcome=ended.outcome) for send in ended.sends]

    def _following(self, ended: _Transaction) -> _Transaction | None:
        if ended.next_id is None:
            return None
        return _Transaction(ended.process, next(self._numbers), Opened.parse(ended.next_id))

    # The ways in which a transaction may end. Each returns whether its transactional id may be opened again.

    async def _end(self, client: Client, rival: Client, transaction: _Transaction) -> bool:
        """Commit or abort the transaction; sometimes send a second request to commit or abort it, through any
        broker.
        """
        await self._write(client, transaction)
        is_commit = transaction.is_whole and client.rng.random() < 0.8
        wanted = Decision.COMMITTED if is_commit else Decision.ABORTED
        await self._ask_end(client, transaction, wanted)
        if transaction.decided and client.rng.random() < 0.2:
            await self._ask_end(rival, transaction, client.rng.choice([*Decision]))
        return True

    async def _race(self, client: Client, rival: Client, transaction: _Transaction) -> bool:
        """Request the commit and the abort of the transaction concurrently."""
        await self._write(client, transaction)
        wanted = Decision.COMMITTED if transaction.is_whole else Decision.ABORTED
        await asyncio.gather(
            self._ask_end(client, transaction, wanted),
            self._ask_end(rival, transaction, Decision.ABORTED),
        )
        return True

    async def _take_over(self, client: Client, rival: Client, transaction: _Transaction) -> bool:
        """Let another process open the transactional id during the transaction; this process continues
        without knowing it.
        """
        await self._write(client, transaction)
        name = transaction.opened.id.rpartition("@")[0]
        if client.rng.random() < 0.5:
            successor = await self._open(rival, name)
            await asyncio.gather(self._go_on(client, transaction), self._succeed(rival, successor))
        else:
            await asyncio.gather(self._go_on(client, transaction), self._open_and_succeed(rival, name))
        transaction.next_id = None
        return True

    async def _leave(self, client: Client, rival: Client, transaction: _Transaction) -> bool:
        """Leave the transaction open, so that it times out, or the next incarnation aborts it."""
        await self._write(client, transaction)
        return client.rng.random() >= NEVER_AGAIN_ODDS

    async def _go_on(self, client: Client, transaction: _Transaction) -> None:
        await self._write(client, transaction)
        wanted = Decision.COMMITTED if transaction.is_whole else Decision.ABORTED
        await self._ask_end(client, transaction, wanted)

    async def _open_and_succeed(self, rival: Client, name: str) -> None:
        await self._succeed(rival, await self._open(rival, name))

    async def _succeed(self, rival: Client, transaction: _Transaction | None) -> None:
        """Complete the first transaction of the process that has taken over, if it could open the
        transactional id.
        """
        if transaction is not None:
            await self._go_on(rival, transaction)
            self._note(transaction)

    # Requests.

    async def _open(self, client: Client, name: str) -> _Transaction | None:
        """Open the transactional id as another process; return its first transaction, None without a response
        in time.
        """
        process, invoked_s = next(self.processes), time.monotonic()
        body = json.dumps({"transactional_id": name, "timeout": TIMEOUT}).encode()
        answer = await self._ask(client, transactions.LIST.path, body)
        self.history.opens.append(
            Open(
                process=process,
                transactional_id=name,
                invoked_s=invoked_s,
                completed_s=time.monotonic(),
                outcome=Outcome.UNKNOWN if answer is None else Outcome.ACKNOWLEDGED,
            )
        )
        if answer is None:
            return None
        return _Transaction(process, next(self._numbers), Opened.parse(str(answer["id"])))

    async def _ask(self, client: Client, path: str, body: bytes | None) -> dict[str, object] | None:
        """Repeat a request until there is a response. Raises an error of ``CLOSED``, or
        ``OutcomeForgotten``.
        """
        deadline = time.monotonic() + self.patience_s()
        while time.monotonic() < deadline:
            try:
                _, found, _ = await client.call("POST", path, body, _JSON if body else {})
                answer: dict[str, object] = json.loads(found)
                return answer
            except (*CLOSED, OutcomeForgotten):
                raise
            except RaftlogError as error:
                if not await self.refused(client, error):
                    return None
        return None

    async def _ask_end(self, client: Client, transaction: _Transaction, asked: Decision) -> None:
        operation = transactions.COMMIT if asked is Decision.COMMITTED else transactions.ABORT
        path = operation.at(transaction=transaction.opened.id)
        transaction.is_commit_asked |= asked is Decision.COMMITTED
        invoked_s, decided = time.monotonic(), None
        try:
            answer = await self._ask(client, path, None)
        except CLOSED:
            decided = Decision.ABORTED
        except OutcomeForgotten:
            decided = None  # later transactions have ended since
        else:
            if answer is not None:
                decided = Decision(answer["outcome"])
                transaction.next_id = None if answer["next_id"] is None else str(answer["next_id"])
        if decided is not None:
            transaction.decided.add(decided)
        self.history.ends.append(
            End(
                process=transaction.process,
                txn=transaction.number,
                asked=asked,
                invoked_s=invoked_s,
                completed_s=time.monotonic(),
                decided=decided,
            )
        )

    async def _write(self, client: Client, transaction: _Transaction) -> None:
        """Send batches to a few partitions, until a batch is not stored."""
        rng = client.rng
        for partition in {self.partition(rng) for _ in range(rng.randint(1, PARTITIONS_MAX))}:
            if transaction.is_whole:
                await self._send(client, transaction, partition)
                await asyncio.sleep(rng.uniform(0, 0.02))

    async def _send(self, client: Client, transaction: _Transaction, partition: int) -> None:
        """Send one batch to a partition, repeated unchanged until its outcome is known."""
        values = [f"t{next(self._values)}" for _ in range(client.rng.randint(1, RECORDS_MAX))]
        sequence = transaction.sequences.get(partition, 0)
        body = client.body_in(transaction.opened, values, sequence, binary=client.rng.random() < 0.5)
        invoked_s, offset = time.monotonic(), None
        deadline = invoked_s + self.patience_s()
        while offset is None and time.monotonic() < deadline:
            try:
                offset = await client.produce(partition, body)
            except CLOSED:
                break
            except RaftlogError as error:
                if not await self.refused(client, error):
                    break
        transaction.sequences[partition] = sequence + len(values)
        completed_s = time.monotonic()
        transaction.sends += [
            Send(
                process=transaction.process,
                partition=partition,
                value=value,
                invoked_s=invoked_s,
                completed_s=completed_s,
                outcome=Outcome.UNKNOWN,  # until its transaction has an outcome
                offset=None if offset is None else offset + number,
                txn=transaction.number,
            )
            for number, value in enumerate(values)
        ]
