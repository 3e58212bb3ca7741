"""Decisions begin with all that their partition has, whatever errors nobody has thought of come when.

Each request is given the next number. A coordinator that begins again while an append is on its way would
give a number twice, or answer what is not stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random

import pytest

from groups.state import GroupsState
from raftlog.errors import CommitUnknown, Overloaded, RaftlogError
from raftlog.hosting.coordinator import Coordinator
from raftlog.hosting.decisions import Answer, Effect, RequestId, Write
from raftlog.records.batch import Batch
from raftlog.records.builder import Record
from raftlog.records.reader import read_records
from tests.helpers.virtual_time import VirtualClock

SEEDS = 150
REQUESTS = 25
TICK_MS = 300
APPEND_S_MAX = 3.0
ERRORS = (MemoryError, RuntimeError)


class Follow(Effect):
    """An effect that may fail."""


class Numbers:
    """Decisions: the next number for each request, and one for each tick."""

    def __init__(self, stored: int, now_ms: int, trouble: Trouble) -> None:
        self._next = stored
        self._due_ms = now_ms + TICK_MS
        self._trouble = trouble
        self._wanted: list[Answer[int] | Write[int] | Effect] = []

    def take(self) -> list[Answer[int] | Write[int] | Effect]:
        """See ``Decisions``."""
        self._trouble.perhaps()
        taken, self._wanted = self._wanted, []
        return taken

    def next_deadline_ms(self) -> int:
        """When the next number is due without a request."""
        self._trouble.perhaps()
        return self._due_ms

    def receive(self, request_id: RequestId, request: str, now_ms: int, wall_ms: int) -> None:
        """The answer is the number."""
        self._trouble.perhaps()
        number = self._number()
        self._trouble.perhaps()
        self._wanted.append(Answer(request_id, number))

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """One more number, and an effect."""
        self._due_ms = now_ms + TICK_MS
        self._number()
        self._trouble.perhaps()
        self._wanted.append(Follow())

    def forget(self, request_id: RequestId, request: str) -> None:
        """See ``Decisions``."""
        self._trouble.perhaps()

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """See ``Decisions``."""
        self._trouble.perhaps()

    def _number(self) -> int:
        self._next += 1
        self._wanted.append(Write((self._next,)))
        return self._next


class Trouble:
    """Errors that nobody has thought of, until it is over."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.is_over = False

    def perhaps(self) -> None:
        """Raise, now and then."""
        if not self.is_over and self.rng.random() < 0.02:
            raise self.rng.choice(ERRORS)("planted")


class Numbering(Coordinator[Numbers, str, int, int]):
    """Its state is the number of records that are committed."""

    def __init__(self, trouble: Trouble, log: Log) -> None:
        super().__init__("numbers", VirtualClock(), lambda row: Record(b"%d" % row), GroupsState())
        self.is_early = False  # it has begun before the outcome of an append was known
        self._trouble = trouble
        self._committed = log

    def begin(self, now_ms: int, before: Numbers | None) -> Numbers:
        """With all that is committed."""
        self._trouble.perhaps()
        self.is_early |= self._committed.pending > 0  # an assertion would be one more unexpected error
        return Numbers(len(self._committed.stored), now_ms, self._trouble)

    def reads_only(self, request: str) -> bool:
        """Every request writes."""
        return False

    def perform(self, effect: Effect) -> None:
        """Nothing, or some work beside that may fail."""
        self._trouble.perhaps()
        self.do_beside(self._works())

    async def _works(self) -> None:
        await asyncio.sleep(0.01)
        self._trouble.perhaps()


class Log:
    """Appends that are committed late, refused, or stored after all when nobody waits for them any more."""

    leader_epoch = 1
    has_room = True

    def __init__(self, trouble: Trouble) -> None:
        self._trouble = trouble
        self.stored: list[int] = []
        self.pending = 0
        self.is_lost = False

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """The outcome comes after a while."""
        rng, loop = self._trouble.rng, asyncio.get_running_loop()
        self._trouble.perhaps()
        if not self._trouble.is_over and rng.random() < 0.05:
            raise Overloaded("too much is in flight")
        outcome: asyncio.Future[None] = loop.create_future()
        numbers = [int(record.value or b"") for batch in batches for record in read_records(batch)]
        self.pending += 1
        loop.call_later(rng.choice((0.0, 0.05, 0.5, APPEND_S_MAX)), self._ends, outcome, numbers)
        return outcome

    def _ends(self, outcome: asyncio.Future[None], numbers: list[int]) -> None:
        rng = self._trouble.rng
        if not self._trouble.is_over and rng.random() < 0.05:
            self.is_lost = True
            if rng.random() < 0.5:
                outcome.cancel()
            else:
                outcome.set_exception(CommitUnknown("the leader has changed"))
            asyncio.get_running_loop().call_later(rng.choice((0.0, APPEND_S_MAX)), self._store, numbers)
            return
        outcome.set_result(None)
        self._store(numbers)

    def _store(self, numbers: list[int]) -> None:
        self.pending -= 1
        self.stored += numbers

    async def confirm(self) -> None:
        """This leader is not deposed."""


async def ask(coordinator: Numbering, answers: list[int]) -> None:
    try:
        answers.append(await coordinator.ask("number", 60_000))
    except RaftlogError:
        return


# requirement: D3
async def test_decisions_begin_with_all_that_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "raftlog.hosting")
    answered = 0
    for seed in range(SEEDS):
        trouble = Trouble(Random(seed))
        log = Log(trouble)
        coordinator = Numbering(trouble, log)
        coordinator.leads(log)
        answers: list[int] = []
        asking = []
        for _ in range(REQUESTS):
            asking.append(asyncio.create_task(ask(coordinator, answers)))
            await asyncio.sleep(trouble.rng.choice((0.0, 0.02, 0.3)))
            if log.is_lost and not log.pending:  # elected again, it has applied its whole log
                log.is_lost = False
                coordinator.leads(log)
        trouble.is_over = True
        await asyncio.sleep(3 * APPEND_S_MAX)
        if log.is_lost:
            coordinator.leads(log)
        await asyncio.sleep(20)
        assert all(one.done() for one in asking), f"seed {seed}: a request has no answer"
        assert not coordinator.is_early, f"seed {seed}: it began before its newest append was known"
        assert coordinator.stalled_s <= APPEND_S_MAX, f"seed {seed}: it does not begin again"
        assert log.stored == [*range(1, len(log.stored) + 1)], f"seed {seed}: a number came twice"
        assert set(answers) <= set(log.stored), f"seed {seed}: an answer that is not stored"
        assert len(set(answers)) == len(answers), f"seed {seed}: two requests have one number"
        coordinator.leads(None)
        answered += len(answers)
    assert answered > SEEDS
