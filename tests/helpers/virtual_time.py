"""An event loop with virtual time: sleeping costs nothing, and runs are deterministic.

When nothing is ready, the clock jumps to the next timer. A run fails instead of hanging if nothing would ever
happen again, or if a task is ready in each of many turns, so that the time stands still. Only for code that
waits for the loop: connections are those of ``paired_sockets``, and work for another thread runs on the loop.
"""

from __future__ import annotations

import asyncio
import selectors
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from raftlog.clock import SystemClock, TrustedClock
from tests.helpers.paired_sockets import PairedSocketsLoop

Result = TypeVar("Result")
OWN_SOCKETS = 1  # of a loop: threads wake it
TURNS_AT_ONCE_MAX = 1_000_000


class _NoWaiting(selectors.DefaultSelector):
    """Waits for nothing; advances the clock by the requested time unless a socket is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0
        self._last_turn = TURNS_AT_ONCE_MAX  # unless time passes

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Sockets that are ready now, or else the next timer."""
        self.turns += 1
        if len(self.get_map()) > OWN_SOCKETS and (ready := super().select(0)):
            return ready
        if timeout is None:
            raise RuntimeError("everybody waits and no timer runs: this would hang for ever")
        if timeout > 0:
            self.now += timeout
            self._last_turn = self.turns + TURNS_AT_ONCE_MAX
        elif self.turns > self._last_turn:
            raise RuntimeError(
                f"the time stands still: a task was ready in {TURNS_AT_ONCE_MAX} turns at once"
            )
        return []


class VirtualLoop(PairedSocketsLoop):
    """See the module. ``errors`` has the exceptions of callbacks and of tasks that nobody awaited."""

    def __init__(self) -> None:
        self._clock = _NoWaiting()
        self.errors: list[str] = []
        self.thread_after_s = 0.0  # how long work for another thread waits before it begins
        super().__init__(self._clock)
        self.set_exception_handler(self._note)

    def time(self) -> float:
        """Seconds since the run began."""
        return self._clock.now

    @property
    def turns(self) -> int:
        """How many turns of the loop have begun."""
        return self._clock.turns

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., Result], *args: object
    ) -> asyncio.Future[Result]:
        """Work of another thread: it runs at one moment, in a later turn of the loop."""
        future: asyncio.Future[Result] = self.create_future()

        def work() -> None:
            if not future.cancelled():
                try:
                    future.set_result(func(*args))
                except Exception as error:
                    future.set_exception(error)

        if self.thread_after_s:
            self.call_later(self.thread_after_s, work)
        else:
            self.call_soon(work)
        return future

    def skip(self, seconds: float) -> None:
        """Time passes without callbacks, as when a process is stopped."""
        self._clock.now += seconds

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""
        self.errors.append(f"{context['message']}\n{trace}")


class VirtualClock:
    """``Clock`` by the time of the running loop; the wall clock is ahead by ``shift_ms``."""

    is_known = True

    def __init__(self) -> None:
        self.shift_ms = 0

    def monotonic(self) -> float:
        """Seconds since the run began."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """A day of the year 2001, from its first moment on, and the shift."""
        return 1_000_000_000_000 + round(self.monotonic() * 1000) + self.shift_ms

    def trusted_ms(self) -> int | None:
        """The wall clock while it is known."""
        return self.wall_ms() if self.is_known else None


def clock_of_loop() -> TrustedClock:
    """The time of the running loop: virtual, or of the machine."""
    return VirtualClock() if isinstance(asyncio.get_running_loop(), VirtualLoop) else SystemClock()


async def eventually(holds: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Return as soon as a condition is met; fail when it is not met in time."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.002)


def run_virtual(work: Coroutine[Any, Any, Result]) -> Result:
    """``asyncio.run`` on a ``VirtualLoop``. Fails when any callback has raised."""
    loop = VirtualLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(work)
    assert loop.errors == [], "\n".join(loop.errors)
    return result
