"""The wait of tests: what it returns, and what it prints when it expires."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable

import pytest

from raftlog.testing import waits
from raftlog.testing.kit import Raftlog
from raftlog.testing.waits import describe_on_expiry, eventually
from tests.helpers.async_tests import in_real_time


class Broken:
    """A state that cannot be had."""

    def state(self) -> str:
        raise OSError("no answer")


class Known:
    def state(self) -> str:
        return "broker 7 runs, not ready"


class Clock:
    """Time that passes while somebody sleeps, and never else."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._now_s += 20


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A look takes 20 s, so that three are within the limit."""
    virtual = Clock()
    monkeypatch.setattr(waits, "time", virtual)
    return virtual


def test_the_first_true_result_is_returned_and_an_error_of_the_system_counts_as_not_yet(clock: Clock) -> None:
    answers = iter([OSError("refused"), 0, None, "found"])

    def look() -> object:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert eventually(look, what="something") == "found"
    assert clock.pauses == [waits.POLL_S, waits.POLL_MAX_S, waits.POLL_MAX_S], "a long wait asks less often"


def test_an_expired_wait_names_the_condition_what_was_seen_the_states_and_the_stacks() -> None:
    known, broken = Known(), Broken()
    describe_on_expiry(known)
    describe_on_expiry(broken)
    ending = threading.Event()
    thread = threading.Thread(target=ending.wait, name="a thread of the test")
    thread.start()
    with pytest.raises(AssertionError) as expired:
        eventually(list, what="a leader")
    ending.set()
    thread.join()
    said = str(expired.value)
    assert said.startswith("a leader: not within 60 s; last seen: []")
    assert "broker 7 runs, not ready" in said
    assert "no answer" in said
    assert "thread a thread of the test:" in said
    assert "eventually" in said


def test_progress_begins_the_limit_again() -> None:
    looks: list[int] = []

    def has_ended() -> bool:
        looks.append(len(looks))
        return len(looks) == 10

    assert eventually(has_ended, what="ten looks", progress=lambda: len(looks))


@in_real_time
async def test_stacks_have_the_tasks_of_loops() -> None:
    task = asyncio.create_task(asyncio.sleep(60), name="a task that sleeps")
    await asyncio.sleep(0)
    try:
        assert "a task that sleeps" in waits.stacks()
    finally:
        task.cancel()


@pytest.mark.parametrize(
    "make", [concurrent.futures.Future, lambda: (str(one) for one in range(3)), lambda: map(str, ())]
)
def test_a_condition_that_was_not_looked_at_does_not_hold(make: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="may not be done"):
        object.__new__(Raftlog).wait_until(make)


def test_a_coroutine_function_is_no_condition() -> None:
    async def holds() -> bool:
        return False

    with pytest.raises(TypeError, match="may not be done"):
        _ = object.__new__(Raftlog).wait_until(holds)
