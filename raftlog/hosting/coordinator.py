"""The coordinator of one partition of an internal topic: requests in, records out, answers after commits.

Its ``Decisions`` are pure: requests and time go in; records, answers and effects come out, in order. An
answer is sent, and an effect is carried out, once all records before it are committed. So the successor of a
coordinator knows all records on which its answers depend.

Decides: when records are appended, and which error callers get when the partition is lost. Leaves to others:
records and answers (``Decisions``), which broker coordinates what (the services of the packages).

Requests of one turn of the event loop share an append, and so do requests that arrive during an append. After
a failed append or an unexpected error, the coordinator begins again from the committed state: interrupted
decisions are not trusted any more. Work beside the decisions does not change them: an error there ends that
work alone.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from raftlog.clock import TrustedClock
from raftlog.errors import (
    CommitUnknown,
    InternalError,
    NotLeader,
    Overloaded,
    RaftlogError,
    RecordTooLarge,
    Rejected,
    StorageFull,
)
from raftlog.exhaustion import refuse_exhausted
from raftlog.hosting.decisions import (
    RECORDS_PER_BATCH,
    Answer,
    Decisions,
    Effect,
    RequestId,
    Write,
)
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.records.batch import Batch, Buffer, Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.state_machine import restored_aside

LOOK_S_MAX: Final = 1.0  # after this time a jump of the clock is noticed
STALL_S: Final = 0.25  # a tick that is later than this waits once more: heartbeats may be queued
AGAIN_S: Final = 0.2  # the minimum pause before the coordinator begins again
AGAIN_TIMES: Final = 50  # the pause in durations of a begin: a large state must not occupy the broker
AGAIN_S_MAX: Final = 5.0  # the maximum pause, also if the process was stopped meanwhile
STALLED_S_MAX: Final = 10.0  # after this time a coordinator counts as stalled: more than any pause
QUIET_S: Final = 15.0  # failures further apart are separate stalls: more than ``AGAIN_S_MAX``
_log = logging.getLogger("raftlog.hosting")

Row = TypeVar("Row")
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Found = TypeVar("Found")


class CoordinatorLog(Protocol):
    """The partition's log in one epoch of its leader."""

    @property
    def leader_epoch(self) -> int:
        """The term of the leader to which this object belongs."""

    @property
    def has_room(self) -> bool:
        """Whether records that free no room may be appended: the free space exceeds the disk's reserve."""

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append batches; the future is done once they are committed and applied.

        Raises ``Rejected`` with nothing written.
        """

    async def confirm(self) -> None:
        """Return once a quorum has confirmed that no other broker leads."""


class ReplicatedState(Protocol):
    """The state after all records of the partition, equal on every replica. Constructed without arguments."""

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch."""

    def snapshot(self) -> bytes:
        """The whole state, in bytes that are equal on every replica."""

    def snapshot_pieces(self) -> Sequence[array[int] | Buffer]:
        """The bytes of ``snapshot`` in pieces, which are valid until the next change of the state."""

    def restore(self, snapshot: bytes) -> None:
        """Adopt the state of a snapshot; empty bytes are the initial state. Raises ``ValueError``."""


DecisionsT = TypeVar("DecisionsT", bound=Decisions[Any])


@dataclass(slots=True)
class _Round:
    """Records that are appended together, and the answers and effects that wait for them."""

    writes: list[Sequence[Record]] = field(default_factory=list)
    then: list[Answer[Any] | Effect] = field(default_factory=list)
    frees_room: bool = True


@dataclass(frozen=True, slots=True)
class _Open(Generic[Request, Reply]):
    """A request that is not answered yet. Its first record is in round ``first_round`` or a later round."""

    request: Request
    reply: asyncio.Future[Reply]
    first_round: int


class Coordinator(Generic[DecisionsT, Request, Reply, Row]):
    """One partition, coordinated by one leader after another. For the event loop's thread only.

    A package supplies the hooks, and ``reads``: the classes of requests that write no record. ``decisions``
    is None on brokers that do not lead the partition.
    """

    reads: ClassVar[tuple[type[Any], ...]] = ()

    def __init__(
        self,
        name: str,
        clock: TrustedClock,
        record_of: Callable[[Row], Record],
        state: ReplicatedState,
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        """``record_of`` encodes one row that decisions write; ``state`` is the committed state."""
        self.decisions: DecisionsT | None = None
        self.frame_limits = frame_limits
        self._name = name
        self._clock = clock
        self._record_of = record_of
        self._state = state
        self._log: CoordinatorLog | None = None
        self._ids = count(1)
        self._open: dict[RequestId, _Open[Request, Reply]] = {}
        self._rounds = 0  # the number of appends begun
        self._appending: _Round | None = None
        self._outcome: asyncio.Future[None] | None = None  # of the newest append
        self._next: _Round | None = None
        self._is_append_due = False  # in the next turn of the loop
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms: int | None = None  # the deadline that the timer waits for
        self._hears_until_s: float | None = None  # after a stall, a time of the loop
        self._begin_s = 0.0  # the duration of the last begin
        self._before: DecisionsT | None = None  # the last decisions of this leader
        self._ended_ms = 0  # the time of their end
        self._paused_ms = 0  # the time between decisions, during which deadlines stand still
        self._again_s = AGAIN_S  # doubled whenever an unexpected error ends a begin
        # A wait for decisions, or for the outcome of an append; until a new begin, which may fail, too.
        self._waits_since_s: float | None = None
        self._waited_until_s: float | None = None
        # Work until these decisions end; a dict cancels it in order, so that equal runs stay equal.
        self._beside: dict[asyncio.Task[None], None] = {}

    # Hooks.

    @abstractmethod
    def begin(self, now_ms: int, before: DecisionsT | None) -> DecisionsT:
        """Create decisions that begin with the committed state.

        Deadlines of ``before``, this leader's last decisions, stay: a refused append prolongs no deadline.
        """

    def reads_only(self, request: Request) -> bool:
        """Whether the request writes no record: its answer then needs a confirmation of the leadership."""
        return isinstance(request, self.reads)

    def needs_room(self, request: Request) -> bool:
        """Whether the records of the request may not use the reserve of a full disk."""
        return False

    def too_late(self, request: Request, timeout_ms: int) -> RaftlogError:
        """The error for a request that was not answered in time."""
        return CommitUnknown(f"{self._name}: no answer within {timeout_ms} ms")

    def perform(self, effect: Effect) -> None:
        """Carry out an effect. A leader that was deposed meanwhile may carry it out, too."""
        raise NotImplementedError

    # Calls of the replica.

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch; see ``ReplicatedState``."""
        self._state.apply(entry)

    def snapshot(self) -> bytes:
        """The bytes of the whole state; see ``ReplicatedState``."""
        return self._state.snapshot()

    def snapshot_pieces(self) -> Sequence[array[int] | Buffer]:
        """The bytes of ``snapshot`` in pieces; see ``ReplicatedState``."""
        return self._state.snapshot_pieces()

    def restoring(self, snapshot: bytes) -> Callable[[], None]:
        """Decode a snapshot while decisions may read the state; see ``StateMachine.restoring``."""
        return restored_aside(self._state, snapshot)

    def leads(self, log: CoordinatorLog | None) -> None:
        """Begin to coordinate the partition, or stop if ``log`` is None."""
        self._end_in_doubt(f"this broker no longer leads {self._name}")
        self._log, self._outcome, self._before = log, None, None
        self._advances()
        if log is not None:
            self._begin()

    @property
    def stalled_s(self) -> float:
        """Seconds for which this leader has neither decided a request nor stored a record although it should.

        A leader that begins again and again, since each step or append fails, counts as stalled all the time.
        """
        if self._waits_since_s is None or self._is_quiet():
            return 0.0
        until_s = self._clock.monotonic() if self._waited_until_s is None else self._waited_until_s
        return until_s - self._waits_since_s

    # Requests.

    async def ask(self, request: Request, timeout_ms: int) -> Reply:
        """Return the coordinator's reply to a request.

        Raises its refusals, ``NotLeader`` and ``NoLeader``, and ``too_late`` when the time runs out. Every
        request may be repeated. A final refusal comes from a confirmed leader: a deposed leader does not know
        which requests its successor has accepted.
        """
        decisions = await self.confirmed() if self.reads_only(request) else self._leading()
        if self.needs_room(request) and not self.has_room():
            # Refused separately: as a refused append, it would end all open requests.
            raise StorageFull(
                f"the disk of the leader of {self._name} is full; free space or retry later",
                retry_after_ms=1000,
            )
        self._guarded(lambda: decisions.expire(self._now_ms(), self._clock.trusted_ms()))
        if decisions is not self.decisions:
            raise NotLeader(f"{self._name} begins again; repeat", leader=None)
        request_id = next(self._ids)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._open[request_id] = _Open(request, future, self._rounds + 1)

        now_ms = self._now_ms()
        self.step(lambda: decisions.receive(request_id, request, now_ms, self._clock.wall_ms()), request_id)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise self.too_late(request, timeout_ms) from None
        except RecordTooLarge:
            raise  # every leader would refuse it
        except Rejected as refusal:
            if not refusal.retryable and await self.confirmed() is not decisions:
                raise NotLeader(f"{self._name} has begun again; repeat", leader=None) from refusal
            raise
        finally:
            is_unanswered = self._open.pop(request_id, None) is not None
            if is_unanswered and (now := self.decisions) is not None:
                self._guarded(lambda: now.forget(request_id, request))

    async def confirmed(self) -> DecisionsT:
        """The decisions, after a quorum has confirmed that no other broker leads. Raises ``NotLeader``."""
        if self._log is not None:
            await self._log.confirm()
        return self._leading()

    def has_room(self) -> bool:
        """Whether this leader's disk has more free space than its reserve."""
        return self._log is None or self._log.has_room

    def _leading(self) -> DecisionsT:
        if self.decisions is None:
            raise NotLeader(f"this broker does not lead {self._name}", leader=None)
        return self.decisions

    def _begin(self) -> None:
        began_s = self._clock.monotonic()
        if self._before is not None:
            self._paused_ms += self._now_ms() - self._ended_ms

        def begin() -> None:
            self.decisions = self.begin(self._now_ms(), self._before)

        self.step(begin)
        self._begin_s = self._clock.monotonic() - began_s
        if self.decisions is not None and self._appending is None:
            self._waited_until_s = self._clock.monotonic()

    def _end_in_doubt(self, why: str) -> None:
        """End the decisions; the outcome of the running append is unknown."""
        self._end(NotLeader(why, leader=None), self._rounds + 1)

    def _end(self, reason: RaftlogError, undone_from: int) -> None:
        """End the decisions and their requests; each caller gets an error.

        Requests whose records were not appended before round ``undone_from``, and reads, get ``reason``. All
        others get ``CommitUnknown``: their records may be stored. The next decisions begin the work beside
        them again.
        """
        self._before, self._ended_ms = self.decisions or self._before, self._now_ms()
        self._wait()
        self.decisions = self._appending = self._next = None
        for task in self._beside:
            task.cancel()
        self._beside.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = None
        unknown = CommitUnknown(f"{reason}; repeat the request")
        for waiting in self._open.values():
            is_undone = waiting.first_round >= undone_from or self.reads_only(waiting.request)
            if not waiting.reply.done():
                waiting.reply.set_exception(reason if is_undone else unknown)
        self._open.clear()

    # Outputs of the decisions.

    def step(self, work: Callable[[], object], request_id: RequestId | None = None) -> None:
        """Do some work with the decisions, for a request if one is given, and carry out the new outputs."""

        def stepped() -> None:
            work()
            self.carry_out()

        self._guarded(stepped, request_id)

    def _guarded(self, work: Callable[[], object], request_id: RequestId | None = None) -> None:
        """Do some work; after any error, such as a lack of memory, the coordinator begins again."""
        try:
            work()
        except Exception as error:
            if request_id is None:
                self._again_s = min(AGAIN_S_MAX, 2 * self._again_s)
            else:
                self._cannot(request_id, error)
            self._broken(error)

    def _cannot(self, request_id: RequestId, error: Exception) -> None:
        """Refuse a request whose own work has failed: no record of it is stored."""
        is_known = isinstance(error, RaftlogError)
        self._answer(Answer(request_id, error if is_known else self._refusal(error, "this request")))

    def _refusal(self, error: Exception, what: str) -> RaftlogError:
        cannot = f"{self._name} cannot carry out {what}"
        try:
            refuse_exhausted(error, cannot)
        except Overloaded as refusal:
            return refusal
        return InternalError(f"{cannot}: {error!r}; report it, with the log of its broker")

    def carry_out(self) -> None:
        """Append, answer and carry out all outputs of the decisions since the last call."""
        assert self.decisions is not None
        for wanted in self.decisions.take():
            if isinstance(wanted, Write):
                self._next = self._next or _Round()
                self._next.writes.append(self._records_of(wanted))
                self._next.frees_room &= wanted.frees_room
            elif (newest := self._next or self._appending) is None or wanted.is_settled:
                self._finish(wanted)
            else:
                newest.then.append(wanted)
        if self._next is not None and self._appending is None and not self._is_append_due:
            self._is_append_due = True
            asyncio.get_running_loop().call_soon(self._guarded, self._append_next)
        self._set_timer()

    def _append_next(self) -> None:
        self._is_append_due = False
        if self._appending is not None or self._next is None:
            return
        assert self._log is not None
        self._appending, self._next = self._next, None
        self._rounds += 1
        self._wait()
        try:
            batches = [*self._batches(self._appending.writes)]
            self._outcome = self._log.propose(batches, frees_room=self._appending.frees_room)
        except RaftlogError as refusal:
            self._failed(refusal)
            return
        decisions = self.decisions
        self._outcome.add_done_callback(lambda done: self._guarded(lambda: self._appended(decisions, done)))

    def _appended(self, decisions: DecisionsT | None, outcome: asyncio.Future[None]) -> None:
        if decisions is not self.decisions or decisions is None:
            return
        try:
            outcome.result()
        except RaftlogError as error:
            self._failed(error)
            return
        except asyncio.CancelledError:
            self._failed(CommitUnknown(f"{self._name}: an append was cancelled; repeat the request"))
            return
        assert self._appending is not None
        waiting, self._appending = self._appending.then, None
        self._advances()
        for wanted in waiting:
            self._finish(wanted)
        self._append_next()

    def _failed(self, error: RaftlogError) -> None:
        """End the decisions after a failed append; begin again if the error is definite."""
        _log.warning("%s: an append of the coordinator failed: %s", self._name, error)
        if error.is_definite:
            self._end(error, self._rounds)
            self._begin_later()
        else:
            self._end_in_doubt(str(error))

    def _broken(self, error: Exception) -> None:
        """End decisions that an error has interrupted; begin again once the append's outcome is known."""
        _log.error("%s: the coordinator begins again after an unexpected error", self._name, exc_info=error)
        log, outcome = self._log, self._outcome
        self._end_in_doubt(f"{self._name} begins again")

        def ended(newest: asyncio.Future[None] | None) -> None:
            if _is_known(newest) and log is self._log and self.decisions is None:
                self._begin_later()

        if outcome is None or outcome.done():
            ended(outcome)
        else:
            outcome.add_done_callback(ended)

    def _begin_later(self) -> None:
        """Begin again after a pause, because restoring a large state must not occupy the broker."""
        pause_s = min(AGAIN_S_MAX, max(self._again_s, AGAIN_TIMES * self._begin_s))
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._begin)

    def _wait(self) -> None:
        if self._waits_since_s is None or self._is_quiet():
            self._waits_since_s = self._clock.monotonic()
        self._waited_until_s = None

    def _is_quiet(self) -> bool:
        """Whether no work of the coordinator has failed for a while."""
        return self._waited_until_s is not None and self._clock.monotonic() - self._waited_until_s > QUIET_S

    def _advances(self) -> None:
        """End a stall: records were stored, or another leader's work begins."""
        self._waits_since_s, self._waited_until_s, self._again_s = None, None, AGAIN_S

    def do_beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Carry out work that takes time beside the decisions, at most until these decisions end.

        ``work`` awaits other work by ``tried`` only; an error that ``work`` itself raises is not handled.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._beside[task] = None
        task.add_done_callback(self._done_beside)

    async def tried(self, work: Awaitable[Found], what: str) -> Found | RaftlogError:
        """The result of work beside the decisions, or the error that it raised.

        ``what`` names the work, for people. The caller decides whether to try again.
        """
        try:
            return await work
        except RaftlogError as error:
            return error
        except Exception as error:
            _log.exception("%s: %s failed with an unexpected error", self._name, what)
            return self._refusal(error, what)

    def _done_beside(self, task: asyncio.Task[None]) -> None:
        is_awaited = task in self._beside
        self._beside.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if is_awaited and isinstance(error, Exception):
            self._broken(error)

    def _finish(self, wanted: Answer[Any] | Effect) -> None:
        if isinstance(wanted, Answer):
            self._answer(wanted)
        else:
            self.perform(wanted)

    def _answer(self, answer: Answer[Any]) -> None:
        waiting = self._open.pop(answer.request_id, None)
        if waiting is None or waiting.reply.done():
            return  # its caller no longer waits
        if isinstance(answer.reply, RaftlogError):
            waiting.reply.set_exception(answer.reply)
        else:
            waiting.reply.set_result(answer.reply)

    def _records_of(self, write: Write[Row]) -> Sequence[Record]:
        """The records of a write. Raises ``RecordTooLarge`` if they exceed the limit of a batch."""
        records = [self._record_of(row) for row in write.rows]
        size_bytes = max(map(_size_of, _pieces(records)), default=0)
        bytes_max = self.frame_limits.write_bytes_max
        if size_bytes > bytes_max:
            raise RecordTooLarge(
                f"{self._name}: the request would store {size_bytes} bytes at once; send less",
                limit_bytes=bytes_max,
            )
        return records

    def _batches(self, writes: Iterable[Sequence[Record]]) -> Iterator[Batch]:
        """Yield batches. A write of up to ``RECORDS_PER_BATCH`` rows is in one batch: all rows or none."""
        records: list[Record] = []
        size_bytes, bytes_max = 0, self.frame_limits.writes_bytes_max
        for more in writes:
            more_bytes = _size_of(more)
            is_full = len(records) + len(more) > RECORDS_PER_BATCH or size_bytes + more_bytes > bytes_max
            if records and is_full:
                yield from self._encoded(records)
                records, size_bytes = [], 0
            records += more
            size_bytes += more_bytes
        yield from self._encoded(records)

    def _encoded(self, records: Sequence[Record]) -> Iterator[Batch]:
        now_ms = self._clock.wall_ms()
        for some in _pieces(records):
            yield from split_batches(build_batch(some, codec=Codec.NONE, timestamp_ms=now_ms))

    # Time.

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000) - self._paused_ms

    def _set_timer(self) -> None:
        """Set the timer, unless its deadline is unchanged: else requests in every turn would postpone it."""
        assert self.decisions is not None
        due_ms = self.decisions.next_deadline_ms()
        if due_ms == self._timer_due_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wait_for(due_ms)

    def _wait_for(self, due_ms: int) -> None:
        left_ms = due_ms - self._now_ms()
        if left_ms > 0:
            self._hears_until_s = None
        delay_s = min(LOOK_S_MAX, max(0, left_ms) / 1000)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick, due_ms)
        self._timer_due_ms = due_ms

    def _tick(self, due_ms: int) -> None:
        """Handle due deadlines; a suspended process first handles the requests that arrived meanwhile."""
        self._timer_due_ms = None
        if self.decisions is None:
            return
        late_ms = self._now_ms() - due_ms
        if late_ms < 0:
            self._wait_for(due_ms)
            return
        loop = asyncio.get_running_loop()
        if self._hears_until_s is None and late_ms > STALL_S * 1000:
            self._hears_until_s = loop.time() + STALL_S
        if self._hears_until_s is not None and loop.time() < self._hears_until_s:
            self._timer = loop.call_at(self._hears_until_s, self._tick, due_ms)
            self._timer_due_ms = due_ms
            return
        self._hears_until_s = None
        decisions = self.decisions

        def tick() -> None:
            decisions.tick(self._now_ms(), self._clock.wall_ms())
            decisions.expire(self._now_ms(), self._clock.trusted_ms())

        self.step(tick)


def _pieces(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield the records in groups, one group for each batch in which they are stored."""
    for first in range(0, len(records), RECORDS_PER_BATCH):
        yield records[first : first + RECORDS_PER_BATCH]


def _size_of(records: Iterable[Record]) -> int:
    return sum(len(record.key or b"") + len(record.value or b"") for record in records)


def _is_known(append: asyncio.Future[None] | None) -> bool:
    """Whether the outcome of the newest append is known."""
    if append is None:
        return True
    error = None if append.cancelled() else append.exception()
    is_refused = isinstance(error, RaftlogError) and error.is_definite
    return is_refused or (error is None and not append.cancelled())
