"""Background work of a broker begins again after an unexpected error, unless a log or a state is wrong."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from raftlog.errors import InvariantViolated, LogCorrupt, MachineFailed, NoLeader
from raftlog.node.duties import AGAIN_S_MAX, Duties


def machine_without_memory() -> MachineFailed:
    error = MachineFailed("it cannot apply")
    error.__cause__ = MemoryError()
    return error


class Duty:
    """Raises these errors, each after it has run for so long, and returns then."""

    def __init__(self, errors: Iterator[BaseException], runs_s: float = 0.0) -> None:
        self.began_s: list[float] = []
        self._errors = errors
        self._runs_s = runs_s

    async def run(self, label: str) -> None:
        """``label`` is an argument that every beginning gets."""
        assert label == "retention"
        self.began_s.append(asyncio.get_running_loop().time())
        for error in self._errors:
            await asyncio.sleep(self._runs_s)
            raise error

    @property
    def pauses_s(self) -> list[float]:
        """Between an error and the next beginning."""
        return [
            after - before - self._runs_s
            for before, after in zip(self.began_s, self.began_s[1:], strict=False)
        ]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ValueError("unexpected"),
        OSError(errno.EMFILE, "no file"),
        RuntimeError("can't start new thread"),
        NoLeader("not caught"),
        machine_without_memory(),
    ],
    ids=repr,
)
async def test_a_duty_begins_again(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    duties, duty = Duties(lambda: False), Duty(iter([error]))
    failed: list[tuple[str, Exception]] = []
    duties.on_failed = lambda name, error: failed.append((name, error))
    with caplog.at_level(logging.ERROR, "raftlog.node"):
        await duties.keep(duty.run, "retention")
    assert duty.pauses_s == [1.0]
    assert duties.failures == 1
    assert failed == [("Duty.run", error)]
    (line,) = caplog.records
    assert "Duty.run restarts in 1 s" in line.message
    assert line.exc_info is not None
    assert line.exc_info[1] is error


async def test_the_pause_doubles_up_to_a_bound() -> None:
    duties, duty = Duties(lambda: False), Duty(repeat(MemoryError(), 9))
    await duties.keep(duty.run, "retention")
    assert duty.pauses_s == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_a_duty_that_has_run_for_long_begins_with_the_shortest_pause() -> None:
    duties, duty = Duties(lambda: False), Duty(repeat(MemoryError(), 3), AGAIN_S_MAX)
    await duties.keep(duty.run, "retention")
    assert duty.pauses_s == [1, 1, 1]


@pytest.mark.parametrize(
    "error",
    [InvariantViolated("two leaders"), LogCorrupt("a hole"), MachineFailed("it cannot apply")],
    ids=repr,
)
async def test_what_is_wrong_ends_what_it_ended_before(error: BaseException) -> None:
    duties, duty = Duties(lambda: False), Duty(iter([error]))
    with pytest.raises(type(error)):
        await duties.keep(duty.run, "retention")
    assert len(duty.began_s) == 1


async def test_no_duty_begins_again_once_an_invariant_is_broken() -> None:
    duties, duty = Duties(lambda: True), Duty(chain([ValueError("late")]))
    with pytest.raises(ValueError, match="late"):
        await duties.keep(duty.run, "retention")


@pytest.mark.parametrize(
    "error", [MemoryError(), ValueError("unexpected"), machine_without_memory()], ids=repr
)
def test_an_error_in_one_step_is_logged_and_the_next_step_follows(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    duties, done = Duties(lambda: False), list[str]()
    with caplog.at_level(logging.ERROR, "raftlog.node"):
        for group in ("orders/0", "orders/1"):
            with duties.step(f"retention of {group}"):
                if group == "orders/0":
                    raise error
                done.append(group)
    assert done == ["orders/1"]
    assert duties.failures == 1
    (line,) = caplog.records
    assert "retention of orders/0 is postponed" in line.message
    assert line.exc_info is not None


@pytest.mark.parametrize(
    ("error", "is_fatal"),
    [
        (InvariantViolated("two leaders"), False),
        (LogCorrupt("a hole"), False),
        (MachineFailed("it cannot apply"), False),
        (ValueError("late"), True),
    ],
    ids=repr,
)
def test_a_step_passes_over_nothing_that_is_wrong(error: BaseException, is_fatal: bool) -> None:
    duties = Duties(lambda: is_fatal)
    with pytest.raises(type(error)), duties.step("retention of orders/0"):
        raise error
