"""Clients that use transactions through any broker; requests arrive late and more than once.

Decides: which requests are repeated, and which facts are noted before a request is sent. Leaves to others:
the requests of each client (``producers``, ``sinks``, ``readers``), and the checks (``judge``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.broker import Broker
from groups.requests import AddOffsets
from partitions.values import QUORUM, AppendReceipt
from raftlog.errors import Conflict, RaftlogError, Rejected
from raftlog.types import TopicPartition
from transactions.records import Handle, Participant
from transactions.requests import (
    AbortBatch,
    AbortOpen,
    BeginRun,
    CommitBatch,
    End,
    Ended,
    Join,
    OfOneId,
    Open,
    Opened,
    Prepare,
    Reply,
    RunBegun,
)
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.refusals import may_be_done
from verification.simulator.scenarios.transactions.judge import ANSWERED, Judge
from verification.simulator.scenarios.transactions.odds import JOURNAL, LEDGER, TransactionOdds
from verification.simulator.simulated_cluster import SimulatedCluster

OLD_MAX: Final = 20  # requests of earlier transactions that may arrive once more


@dataclass(slots=True)
class Write:
    """One batch of a transaction; without an offset the batch is not known to be stored."""

    target: Participant
    values: tuple[str, ...]
    offset: int | None = None
    is_refused: bool = False  # for good: it is never visible


@dataclass(slots=True)
class Story:
    """The batches and transactions of a run's clients, and the requests that they may repeat."""

    odds: TransactionOdds
    judge: Judge
    targets: list[Participant]
    writes: dict[Handle, list[Write]] = field(default_factory=dict)
    plain: list[Write] = field(default_factory=list)
    prepared: dict[str, Handle] = field(default_factory=dict)  # that the sink may commit, by task
    noted: dict[str, int] = field(default_factory=dict)  # the newest batch in the checkpoint of each query
    old_ends: list[End] = field(default_factory=list)
    old_batches: list[tuple[Handle, Participant, bytes]] = field(default_factory=list)
    requests: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    def begin(cls, odds: TransactionOdds, judge: Judge) -> Story:
        """Create a story without batches and requests."""
        ledger: list[Participant] = [(LEDGER, number) for number in range(odds.ledger_partitions)]
        return cls(odds, judge, [*ledger, (JOURNAL, 0)])

    def start(self, work: Coroutine[object, None, None]) -> None:
        """Start a task in the background; the run waits for it at the end."""
        task = asyncio.get_running_loop().create_task(work)
        self.requests.add(task)
        task.add_done_callback(self.requests.discard)


class TransactionClient(Client):
    """Base class of transactional clients."""

    def __init__(self, cluster: SimulatedCluster, name: str, story: Story) -> None:
        super().__init__(cluster, name)
        self.story = story
        self.judge = story.judge
        self._late_rng = cluster.rng(f"late requests of {name}")

    async def request(self, request: OfOneId) -> Reply:
        """Send a request to any broker, and sometimes repeat it later. Raises ``RaftlogError``."""
        self._note(request)
        reply = await self._request_once(request)
        odds = self.story.odds
        if not self.cluster.is_healed and self._late_rng.random() < odds.late:
            self.story.start(self._again_later(request))
        return reply

    async def send(self, handle: Handle, target: Participant, data: bytes) -> AppendReceipt:
        """Append a batch in a transaction, in one attempt."""
        where = TopicPartition(*target)
        return await self.ask(
            self.machine(),
            lambda broker: broker.gateway.append(
                where, data, acks=QUORUM, timeout_ms=TIMEOUT_MS, transactional_id=handle.transactional_id
            ),
            partial(self.cluster.responses.appended, where, data, QUORUM),
        )

    async def add_offset(self, handle: Handle, request: AddOffsets) -> None:
        """Add an offset of a group to a transaction, in the two steps of the HTTP API. Raises
        ``RaftlogError``.
        """

        async def add(broker: Broker) -> None:
            groups, service = broker.groups.service, broker.transactions.service
            await groups.ready(timeout_ms=TIMEOUT_MS)
            join = Join(transaction=handle, groups=(request.group,))
            await service.ask(join, timeout_ms=TIMEOUT_MS)
            await groups.ask(request, timeout_ms=TIMEOUT_MS)
            self.judge.offsets.acknowledged(request)

        await self.offsets_asked(request, add)

    async def offsets_asked(self, request: AddOffsets, add: Callable[[Broker], Awaitable[object]]) -> None:
        """Call ``add``, which adds offsets to a transaction at a broker, and note the outcome. Raises
        ``RaftlogError``.
        """
        offsets = self.judge.offsets
        offsets.attempts.sends(request.offsets[0].offset)
        try:
            await self.ask(self.machine(), add)
        except RaftlogError as error:
            self.judge.checked(partial(offsets.attempts.refused, request.offsets[0].offset, error))
            raise

    async def _again_later(self, request: OfOneId) -> None:
        await asyncio.sleep(self._late_rng.expovariate(1.0) * self.story.odds.late_s)
        if self.cluster.is_healed:
            return
        self._note(request)
        try:
            await self._request_once(request)
        except RaftlogError:
            return

    async def _request_once(self, request: OfOneId) -> Reply:
        self.judge.asked.attempts.update(_to_commit(request))
        try:
            return await self.ask(
                self.machine(),
                lambda broker: broker.transactions.service.ask(request, timeout_ms=TIMEOUT_MS),
                partial(self._check, request),
            )
        except RaftlogError as error:
            is_final = isinstance(error, Rejected) and not isinstance(error, Conflict) and not error.retryable
            if is_final and isinstance(request, End):
                self.judge.refused(request.transaction, error)
            for handle in () if may_be_done(error) else _to_commit(request):
                self.judge.in_vain(handle, error)
            self.cluster.trace.note(None, f"{self.name}: {request}: {error!r}")
            raise

    def _note(self, request: OfOneId) -> None:
        """Note which outcomes a request may cause, before the coordinator can get the request."""
        asked = self.judge.asked
        if isinstance(request, End):
            (asked.commits if request.is_commit else asked.aborts).add(request.transaction)
        elif isinstance(request, CommitBatch):
            asked.commits.update(request.handles)
        elif isinstance(request, AbortBatch):
            asked.aborts.update(request.handles)
        if isinstance(request, Open | AbortOpen):
            self._note_names(request.transactional_id)
        elif isinstance(request, BeginRun) or (
            isinstance(request, CommitBatch | AbortBatch) and request.run_epoch
        ):
            self._note_names(*self.story.odds.query_ids)  # others of the sink are aborted
        elif isinstance(request, Prepare):
            self.begins(request.transaction)

    def _note_names(self, *names: str) -> None:
        """Note that open transactions of these transactional ids may be aborted soon."""
        until_s = self.cluster.loop.now + (TIMEOUT_MS + 500) / 1000
        self.judge.asked.ended_by_name_s.update(dict.fromkeys(names, until_s))

    def begins(self, handle: Handle) -> None:
        """Note that the first request of a transaction is about to be sent."""
        odds = self.story.odds
        limit_ms = min(odds.timeout_ms, odds.prepared_ms)
        self.judge.asked.began_s.setdefault(handle, (self.cluster.loop.now, limit_ms))

    def _check(self, request: OfOneId, broker: Broker, reply: Reply) -> None:
        """Check an answer at the moment at which the broker gives it."""
        self.cluster.trace.note(broker.node_id, f"answers {request} with {reply}")
        self.judge.look()
        if isinstance(request, Open) and isinstance(reply, Opened) and request.after is not None:
            self._check_after(request.after, reply)
        if isinstance(request, End) and isinstance(reply, Ended):
            self.judge.ended(request.transaction, reply.is_committed, self.written(request.transaction))
        elif isinstance(request, CommitBatch):
            for handle in request.handles:
                self.judge.ended(handle, True, self.written(handle))
            self.judge.batch_committed(request)
        elif isinstance(request, BeginRun) and isinstance(reply, RunBegun):
            self.judge.run_begun(request, reply)
        elif isinstance(request, AbortBatch):
            for handle in request.handles:
                self.judge.aborted(handle)

    def _check_after(self, after: Handle, reply: Opened) -> None:
        """Check that no process has opened the id after the transaction ``after``, if the reply continues its
        producer id (T6).
        """
        if reply.producer_id == after.producer_id and reply.epoch > after.epoch + 2:
            self.cluster.violated(ANSWERED, f"{after} is continued as {reply}, and others came between")

    def written(self, handle: Handle) -> list[Participant]:
        """Return the partitions that have acknowledged batches of the transaction."""
        return [write.target for write in self.story.writes.get(handle, ()) if write.offset is not None]


def _to_commit(request: OfOneId) -> tuple[Handle, ...]:
    """Return the transactions that a request commits."""
    if isinstance(request, CommitBatch):
        return request.handles
    return (request.transaction,) if isinstance(request, End) and request.is_commit else ()
