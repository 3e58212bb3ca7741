"""The coordinator of one partition of ``__offsets``: requests in, records out, answers after their commit.

Decides: when records are appended, and what callers are told when the partition is lost. Leaves to others:
what is written and answered (``coordination``), which broker coordinates a group (``service``).

Requests that come while an append is under way share the next one. After an append that has failed the
coordinator begins again from what is committed: members keep their generation and get a whole session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from groups.coordination import Coordination
from groups.outputs import Answer, RequestId, Write
from groups.records import Key, Value, record_of
from groups.requests import Join, ReadGroup, Reply, Request, Sync
from groups.state import GroupsState
from groups.tally import Tally
from raftlog.clock import Clock
from raftlog.errors import CommitUnknown, NotLeader, RaftlogError, RebalanceInProgress
from raftlog.records.batch import Batch, Codec, split_batches
from raftlog.records.builder import build_batch

RECORDS_PER_BATCH: Final = 1_000
LOOK_S_MAX: Final = 1.0  # after this time a clock that was advanced is noticed
STALL_S: Final = 0.25  # a tick that is so late waits once more: heartbeats may stand in a queue
AGAIN_S: Final = 0.2  # before the coordinator begins again
_log = logging.getLogger("raftlog.groups")


class Log(Protocol):
    """The partition's log in one epoch of its leader."""

    def propose(self, batches: Sequence[Batch]) -> asyncio.Future[None]:
        """Append; done once committed and applied. Raises ``Rejected`` with nothing written."""

    async def confirm(self) -> None:
        """Return once it is proved that no other broker leads."""


@dataclass(slots=True)
class _Round:
    """Records that are appended together, and the answers that wait for them."""

    rows: list[tuple[Key, Value | None]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class Coordinator:
    """One partition. It is the derived state of its replica; all on the event loop's thread."""

    def __init__(
        self, name: str, clock: Clock, counts: Mapping[str, int], *, offsets_retention_ms: int
    ) -> None:
        """``counts`` are the partitions by topic, which the caller keeps up to date."""
        self.state = GroupsState()
        self.tally = Tally()
        self._name = name
        self._clock = clock
        self._counts = counts
        self._offsets_retention_ms = offsets_retention_ms
        self._log: Log | None = None
        self._coordination: Coordination | None = None
        self._ids = count(1)
        self._open: dict[RequestId, asyncio.Future[Reply]] = {}
        self._appending: _Round | None = None
        self._next: _Round | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hears_until_s: float | None = None  # after a stall, by the loop's time

    @property
    def is_coordinating(self) -> bool:
        """Whether this broker answers for the groups of the partition."""
        return self._coordination is not None

    @property
    def coordinated(self) -> GroupsState | None:
        """The groups as they will be once all records are committed; None on other brokers."""
        return None if self._coordination is None else self._coordination.state

    # What the replica tells.

    def apply(self, entry: Batch) -> None:
        """See ``GroupsState.apply``."""
        self.state.apply(entry)

    def snapshot(self) -> bytes:
        """See ``GroupsState.snapshot``."""
        return self.state.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """See ``GroupsState.restore``."""
        self.state.restore(snapshot)

    def leads(self, log: Log | None) -> None:
        """This broker coordinates the groups from now on, or no longer."""
        deposed = f"this broker does not lead {self._name} any more"
        if self._appending is not None:
            for answer in self._appending.answers:
                self._answer(Answer(answer.request_id, CommitUnknown(f"{deposed}; repeat the request")))
        self._end(NotLeader(deposed, leader=None))
        self._log = log
        self.tally.rebalances.clear()
        if log is not None:
            self._begin()

    def partitions_changed(self) -> None:
        """The partition counts have changed."""
        if self._coordination is not None:
            self._coordination.partitions_changed(self._now_ms())
            self._carry_out()

    # Requests.

    async def ask(self, request: Request, timeout_ms: int) -> Reply:
        """The coordinator's reply.

        Raises what it refuses, ``NotLeader``, and when the time runs out ``RebalanceInProgress`` or
        ``CommitUnknown``. Every request may be repeated.
        """
        if isinstance(request, ReadGroup) and self._log is not None:
            await self._log.confirm()
        if self._coordination is None:
            raise NotLeader(f"this broker does not lead {self._name}", leader=None)
        request_id = next(self._ids)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._open[request_id] = future
        self._coordination.receive(request_id, request, self._now_ms(), self._clock.wall_ms())
        self._carry_out()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            if isinstance(request, Join | Sync):
                raise RebalanceInProgress(
                    f"the rebalance of group {request.group} is not over yet; repeat the request",
                    retry_after_ms=0,
                ) from None
            raise CommitUnknown(f"group {request.group}: no answer within {timeout_ms} ms") from None
        finally:
            self._open.pop(request_id, None)
            if self._coordination is not None:
                self._coordination.forget(request_id, request.group)

    async def summaries(self) -> list[tuple[str, str, int]]:
        """Name, state and number of members of each group. Raises ``NotLeader``."""
        if self._log is not None:
            await self._log.confirm()
        if self._coordination is None:
            raise NotLeader(f"this broker does not lead {self._name}", leader=None)
        groups = self._coordination.state.groups
        return [(name, self._coordination.state_of(name), len(each.members)) for name, each in groups.items()]

    def _begin(self) -> None:
        self._coordination = Coordination(
            self.state,
            self._counts,
            now_ms=self._now_ms(),
            offsets_retention_ms=self._offsets_retention_ms,
            tally=self.tally,
        )
        self._carry_out()

    def _end(self, reason: RaftlogError) -> None:
        """All that wait are told."""
        self._coordination = self._appending = self._next = None
        if self._timer is not None:
            self._timer.cancel()
        for future in self._open.values():
            if not future.done():
                future.set_exception(reason)
        self._open.clear()

    # What the coordination wants.

    def _carry_out(self) -> None:
        assert self._coordination is not None
        for wanted in self._coordination.take():
            if isinstance(wanted, Write):
                self._next = self._next or _Round()
                self._next.rows += wanted.rows
            elif (newest := self._next or self._appending) is not None:
                newest.answers.append(wanted)
            else:
                self._answer(wanted)
        self._append_next()
        self._set_timer()

    def _append_next(self) -> None:
        if self._appending is not None or self._next is None:
            return
        assert self._log is not None
        self._appending, self._next = self._next, None
        try:
            outcome = self._log.propose(_batches(self._appending.rows, self._clock.wall_ms()))
        except RaftlogError as refusal:
            self._failed(refusal)
            return
        coordination = self._coordination
        outcome.add_done_callback(lambda done: self._appended(coordination, done))

    def _appended(self, coordination: Coordination | None, outcome: asyncio.Future[None]) -> None:
        if coordination is not self._coordination or coordination is None:
            return
        error = outcome.exception()
        if error is not None:
            assert isinstance(error, RaftlogError), error
            self._failed(error)
            return
        assert self._appending is not None
        answers, self._appending = self._appending.answers, None
        for answer in answers:
            self._answer(answer)
        self._append_next()

    def _failed(self, error: RaftlogError) -> None:
        """What was decided is not what is stored. Begin again from that, unless it is not known."""
        _log.warning("the groups of %s lose their coordinator: %s", self._name, error)
        self._end(error)
        if error.is_definite:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(AGAIN_S, self._begin)

    def _answer(self, answer: Answer) -> None:
        future = self._open.pop(answer.request_id, None)
        if future is None or future.done():
            return  # its caller has gone
        if isinstance(answer.reply, RaftlogError):
            future.set_exception(answer.reply)
        else:
            future.set_result(answer.reply)

    # Time.

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _set_timer(self) -> None:
        if self._coordination is None:
            return  # an append was refused at once, and the timer is for the next beginning
        if self._timer is not None:
            self._timer.cancel()
        self._wait_for(self._coordination.next_deadline_ms())

    def _wait_for(self, due_ms: int) -> None:
        left_ms = due_ms - self._now_ms()
        if left_ms > 0:
            self._hears_until_s = None
        delay_s = min(LOOK_S_MAX, max(0, left_ms) / 1000)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick, due_ms)

    def _tick(self, due_ms: int) -> None:
        """A process that was stopped hears the heartbeats that it has missed before it ends sessions."""
        if self._coordination is None:
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
            return
        self._hears_until_s = None
        self._coordination.tick(self._now_ms(), self._clock.wall_ms())
        self._carry_out()


def _batches(rows: Sequence[tuple[Key, Value | None]], now_ms: int) -> list[Batch]:
    return [batch for data in _encoded(rows, now_ms) for batch in split_batches(data)]


def _encoded(rows: Sequence[tuple[Key, Value | None]], now_ms: int) -> Iterator[bytes]:
    for first in range(0, len(rows), RECORDS_PER_BATCH):
        records = [record_of(key, value) for key, value in rows[first : first + RECORDS_PER_BATCH]]
        yield build_batch(records, codec=Codec.NONE, timestamp_ms=now_ms)
