"""Requests that wait on one Raft group, and the end of each wait.

Decides: in which order waits end, and that a loss of leadership ends all of them with an unknown outcome.
Leaves to others: when an entry is durable, replicated, committed (``raft_group`` reports it).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar, cast

from raftlog.core.membership import Membership
from raftlog.core.ready import Appended, ReadConfirmed, RefusalReason, Refused
from raftlog.errors import CommitUnknown, InvalidRequest, NotLeader, Overloaded
from raftlog.records.batch import Batch
from raftlog.types import Index, NodeId, Term, Token

Reply = TypeVar("Reply")

UNSETTLED_READS_MAX: Final = 10_000


class Proposal(Generic[Reply]):
    """Batches offered to the leader, and their outcome.

    ``first..last`` are their indexes in ``term``. A proposal ends with the machine's reply to the last batch
    once that batch is committed and applied here, or with ``CommitUnknown`` if leadership or the replica is
    lost first.
    """

    __slots__ = (
        "_is_lost",
        "_outcome",
        "_reply",
        "_waiters",
        "first",
        "is_applied",
        "last",
        "size_bytes",
        "term",
    )

    def __init__(self, first: Index, term: Term, batches: Sequence[Batch]) -> None:
        header = batches[-1].header
        self.first = first
        self.last = Index(header.base_offset + header.last_offset_delta)
        self.term = term
        self.size_bytes = 0
        for batch in batches:
            self.size_bytes += len(batch.data)
        self.is_applied = False  # whether its last batch is committed and applied
        self._reply: Reply | None = None
        self._is_lost = False
        self._outcome: asyncio.Future[Reply] | None = None
        self._waiters: dict[asyncio.Future[None], None] = {}

    @property
    def outcome(self) -> asyncio.Future[Reply]:
        """A future of the machine's reply, for callers that may wait without limit.

        It need not be awaited.
        """
        if self._outcome is None:
            self._outcome = asyncio.get_running_loop().create_future()
            self._outcome.add_done_callback(_retrieve)
            self._tell_outcome()
        return self._outcome

    async def ended(self, deadline: float) -> None:
        """Return once the proposal is applied. Cancellation or a timeout ends only the wait.

        Raises ``CommitUnknown``, and ``TimeoutError`` at ``deadline``, a time of the running loop.
        """
        if not self.is_applied and not self._is_lost:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters[waiter] = None
            timer = end_at(waiter, deadline)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiters.pop(waiter, None)
        if self._is_lost:
            raise _lost()
        if not self.is_applied:
            raise TimeoutError

    def applied(self, reply: Reply) -> None:
        """End the proposal: its last batch is committed and applied."""
        self.is_applied, self._reply = True, reply
        self._end()

    def lost(self) -> None:
        """End the proposal with an unknown outcome, which this replica can no longer learn."""
        self._is_lost = True
        self._end()

    def _end(self) -> None:
        if self._outcome is not None:
            self._tell_outcome()
        for waiter in self._waiters:
            _finish(waiter, None)

    def _tell_outcome(self) -> None:
        if self._is_lost:
            _fail(self._outcome, _lost())
        elif self.is_applied:
            _finish(self._outcome, cast("Reply", self._reply))


class UncommittedBytes:
    """The total size of uncommitted proposals, over all partitions of one broker."""

    __slots__ = ("bytes_max", "total")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total = 0


class Waits:
    """The waiting requests of one group, except proposals, which ``recent_entries`` holds."""

    def __init__(self) -> None:
        self._last_token = 0
        self._reads: dict[Token, asyncio.Future[Index]] = {}
        self._unsettled_reads: set[Token] = set()  # in the core, also after their requests were cancelled
        self._durable: dict[asyncio.Future[None], Index] = {}  # rising indexes
        self._replicated: list[tuple[Index, int, asyncio.Future[None]]] = []
        self.counts_replicas = False  # whether a request waits for a number of replicas
        self._ready: dict[asyncio.Future[None], None] = {}
        self._changes: dict[Token, tuple[Membership, asyncio.Future[None]]] = {}
        self._role_changes: dict[asyncio.Future[None], None] = {}

    def token(self) -> Token:
        """A new token, which names one request to the core."""
        self._last_token += 1
        return Token(self._last_token)

    def read(self) -> tuple[Token, asyncio.Future[Index]]:
        """Create a token and a future for a read that is passed to the core.

        Raises ``Overloaded`` if too many reads wait: a leader that can commit no entry, for instance because
        of full disks, answers no read, while clients give up and send more reads.
        """
        if len(self._unsettled_reads) >= UNSETTLED_READS_MAX:
            raise Overloaded("too many reads wait to be confirmed; retry later", retry_after_ms=1000)
        token = self.token()
        self._unsettled_reads.add(token)
        self._reads[token] = future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._reads.pop(token, None))
        return token, future

    def until_durable(self, last: Index) -> asyncio.Future[None]:
        """A future that is done once ``last`` is durable on this disk."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._durable[future] = last
        future.add_done_callback(lambda _: self._durable.pop(future, None))
        return future

    def until_replicated(self, last: Index, count: int) -> asyncio.Future[None]:
        """A future that is done once ``count`` voters hold ``last`` durably."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._replicated.append((last, count, future))
        self.counts_replicas = True
        return future

    def until_ready(self) -> asyncio.Future[None]:
        """A future that is done once the leader is ready and has applied its backlog, or no longer leads."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready[future] = None
        future.add_done_callback(lambda _: self._ready.pop(future, None))
        return future

    def change(self, target: Membership) -> tuple[Token, asyncio.Future[None]]:
        """Create a token and a future for a membership change; done once ``target`` is in force and
        committed.
        """
        token = self.token()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes[token] = (target, future)
        future.add_done_callback(lambda _: self._changes.pop(token, None))
        return token, future

    def until_role_changes(self) -> asyncio.Future[None]:
        """A future that is done once the role, the term or the known leader changes.

        Callers may cancel it.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._role_changes[future] = None
        future.add_done_callback(lambda _: self._role_changes.pop(future, None))
        return future

    def settle(self, settled: Appended | ReadConfirmed | Refused) -> None:
        """End a read that was confirmed or refused, or a change that was refused.

        All other changes end when their membership is committed.
        """
        match settled:
            case ReadConfirmed(token, index):
                self._unsettled_reads.discard(token)
                _finish(self._reads.get(token), index)
            case Refused(token, leader, reason):
                self._unsettled_reads.discard(token)
                _fail(self._reads.get(token), _refusal(leader, reason))
                _, change = self._changes.get(token, (None, None))
                _fail(change, _refusal(leader, reason))

    def membership_committed(self, membership: Membership) -> None:
        """End the changes to a membership that is now in force and committed."""
        for target, future in list(self._changes.values()):
            if target == membership:
                _finish(future, None)

    def role_changed(self) -> None:
        """End the waits for a change of the role, the term or the known leader."""
        waiting, self._role_changes = self._role_changes, {}
        for future in waiting:
            _finish(future, None)

    def durable(self, durable_index: Index) -> None:
        """End the waits for indexes up to ``durable_index``, which are now durable on this disk."""
        while self._durable and (first := next(iter(self._durable.items())))[1] <= durable_index:
            del self._durable[first[0]]
            _finish(first[0], None)

    def replicated(self, holding: Callable[[Index], int]) -> None:
        """End the waits for replicas; ``holding`` returns the number of voters that hold an index durably."""
        left = []
        for last, count, future in self._replicated:
            if holding(last) >= count:
                _finish(future, None)
            elif not future.done():
                left.append((last, count, future))
        self._replicated, self.counts_replicas = left, bool(left)

    def ready(self) -> None:
        """End the waits of ``until_ready``: the leader is ready and has no backlog, or it leads no more."""
        waiting, self._ready = self._ready, {}
        for future in waiting:
            _finish(future, None)

    def leadership_lost(self) -> None:
        """End all waits with an unknown outcome or a refusal: this replica can no longer learn
        the outcomes.
        """
        error = _lost()
        for future in [*self._durable, *(future for _, _, future in self._replicated)]:
            _fail(future, error)
        for read in list(self._reads.values()):
            _fail(read, NotLeader("leadership was lost", leader=None))
        for _, change in list(self._changes.values()):
            _fail(change, CommitUnknown("leadership was lost before the change was finished", committed=None))
        self._durable.clear()
        self._replicated.clear()
        self.counts_replicas = False
        self.ready()
        self.role_changed()


def end_at(waiter: asyncio.Future[None], at: float) -> asyncio.TimerHandle:
    """End a wait at the time ``at`` of the running event loop. The caller cancels the returned timer."""
    return asyncio.get_running_loop().call_at(at, _finish, waiter, None)


def _lost() -> CommitUnknown:
    return CommitUnknown("leadership was lost before the records were known to be committed", committed=None)


def _refusal(leader: NodeId | None, reason: RefusalReason) -> NotLeader | InvalidRequest:
    if reason in (RefusalReason.NOT_LEADER, RefusalReason.TRANSFERRING):
        return NotLeader(f"{reason.value}; the leader is broker {leader}", leader=leader)
    return InvalidRequest(reason.value, reason=reason.name.lower())


Result = TypeVar("Result")


def _finish(future: asyncio.Future[Result] | None, result: Result) -> None:
    if future is not None and not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Result] | None, error: BaseException) -> None:
    if future is not None and not future.done():
        future.set_exception(error)


def _retrieve(future: asyncio.Future[Result]) -> None:
    if not future.cancelled():
        future.exception()
