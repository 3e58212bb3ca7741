"""Implements an event loop whose clock jumps from timer to timer. Its processes can be killed, paused, skewed
or slowed.

Decides: which callback runs next. All callbacks of one moment run in the order in which they were scheduled;
when none is left, the clock jumps to the next timer. The loop never really waits, and no other thread runs.

Every callback belongs to the ``Process`` that scheduled it. The callbacks of a dead process never run, and
the callbacks of a paused process wait until it resumes. A skewed process sees time pass faster. Each callback
of a slow process takes time, during which the other callbacks of this process wait, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple, Unpack, cast

if TYPE_CHECKING:
    from asyncio import Future

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

SHORTEST_S = 1e-6  # a clock that is read again has advanced
TURNS_WITHOUT_TIME_MAX = 50_000  # more callbacks in one moment count as an endless loop


class Process:
    """One process of a program, from its start to its end.

    ``rate`` is the speed of its clocks, ``turn_s`` the CPU time of each of its callbacks in true seconds.
    """

    __slots__ = (
        *("context", "deferred", "is_alive", "is_busy", "is_paused", "name", "next", "rate", "tasks"),
        "turn_s",
    )

    def __init__(self, name: str, rate: float = 1.0, turn_s: float = 0.0) -> None:
        self.name = name
        self.rate = rate
        self.turn_s = turn_s
        self.is_alive = True
        self.is_paused = False
        self.is_busy = False
        self.next: _Callback | None = None  # the one that a busy process runs
        self.deferred: deque[_Callback] = deque()
        self.tasks: list[
            asyncio.Task[object]
        ] = []  # kept, so that garbage collection does not end tasks of a dead process
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class _Callback:
    """A handle of asyncio. A handle in the heap is a timer; any other handle is a callback of the
    next turn.
    """

    __slots__ = ("_is_cancelled", "_when", "arguments", "context", "function", "process")

    def __init__(
        self,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        context: contextvars.Context | None,
        when: float,
    ) -> None:
        self.function = function
        self.arguments = arguments
        if context is None:
            context = contextvars.copy_context()
        self.context = context
        self.process = context.get(_process)
        self._when = when
        self._is_cancelled = False

    def cancel(self) -> None:
        self._is_cancelled = True

    def cancelled(self) -> bool:
        """True if the callback will never run."""
        return self._is_cancelled

    def when(self) -> float:
        """The time at which the callback is due."""
        return self._when


class Watcher(Protocol):
    """Observes the loop. ``watched`` is the name of the method after whose calls ``stepped`` is called."""

    @property
    def watched(self) -> Callable[..., object]: ...

    def stepped(self, process: Process) -> None:
        """Called after a callback of this process has called the watched method of some object."""

    def failed(self, process: Process | None, message: str, error: BaseException | None) -> None:
        """Called after a callback has raised, or when the exception of a task was never retrieved."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop whose clock jumps to the next timer.

    ``thread_latency`` is the duration of work on another thread, in seconds.
    """

    def __init__(self, watcher: Watcher, thread_latency: Callable[[Process | None], float]) -> None:
        self.now = 0.0
        self.is_stopped = False
        self._watcher = watcher
        self._thread_latency = thread_latency
        self._ready: deque[_Callback] = deque()
        self._timers: list[tuple[float, int, _Callback]] = []
        self._sequence = 0
        self._current: Process | None = None
        self.is_on_a_thread = False
        self._is_closed = False
        self.listen: Callable[[str, Process, Callable[[], asyncio.BaseProtocol]], object] | None = None
        self._graveyard: list[Process] = []

    # Time and callbacks.

    def time(self) -> float:
        """The time in seconds, by the clock of the running process."""
        return self.now if self._current is None else self.now * self._current.rate

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run a callback at this moment, after all callbacks that were scheduled for it before."""
        handle = _Callback(callback, args, context, self.now)
        self._ready.append(handle)
        return handle  # type: ignore[return-value]

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback after a number of seconds, by the clock of the running process."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a time of the clock of the running process."""
        handle = _Callback(callback, args, context, when)
        due = when if self._current is None else when / self._current.rate
        earliest = self.now + SHORTEST_S
        self._sequence += 1
        heapq.heappush(self._timers, (due if due > earliest else earliest, self._sequence, handle))
        return handle  # type: ignore[return-value]

    def later_in(
        self,
        process: Process,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
    ) -> None:
        """Run a callback in a process after a number of true seconds."""
        self.at_in(process, self.now + delay, callback, *args)

    def at_in(
        self,
        process: Process,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
    ) -> None:
        """Run a callback in a process at a true time; callbacks of the same time run in the order of these
        calls.
        """
        self._push(when, _Callback(callback, args, process.context, when))

    def later(self, delay: float, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments) -> None:
        """Run a callback that belongs to no process, after a number of true seconds."""
        self._push(self.now + delay, _Callback(callback, args, _NOBODY, self.now + delay))

    def at(self, when: float, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments) -> None:
        """Run a callback that belongs to no process, at a true time."""
        self._push(when, _Callback(callback, args, _NOBODY, when))

    def _push(self, when: float, handle: _Callback) -> None:
        self._sequence += 1
        heapq.heappush(self._timers, (when if when > self.now else self.now, self._sequence, handle))

    # The run.

    def run(self, main: Coroutine[object, object, Result], until_s: float) -> Result | None:
        """Run the loop until ``main`` is done, or ``is_stopped`` is set.

        Raises what ``main`` raises, and ``TimeoutError`` when the time is up first.
        """
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            task = asyncio.Task(main, loop=self, context=_NOBODY.copy())
            self._run(task, until_s)
        finally:
            events._set_running_loop(before)
        return task.result() if task.done() else None

    def _run(self, task: asyncio.Task[Result], until_s: float) -> None:
        ready, timers, watcher = self._ready, self._timers, self._watcher
        watched = watcher.watched
        turns = 0
        while not task.done() and not self.is_stopped:
            if not ready:
                if not timers or timers[0][0] > until_s:
                    raise TimeoutError(f"no event is scheduled that can end the run before {until_s} s")
                self.now, _, handle = heapq.heappop(timers)
                turns = 0
            else:
                handle = ready.popleft()
                turns += 1
                if turns > TURNS_WITHOUT_TIME_MAX:
                    raise RuntimeError(f"{turns} callbacks in one moment, the next is {handle.function}")
            if handle._is_cancelled:
                continue
            process, function = handle.process, handle.function
            if process is not None:
                if not process.is_alive:
                    continue
                if process.is_paused or (process.is_busy and handle is not process.next):
                    process.deferred.append(handle)
                    continue
            self._current = process
            try:
                handle.context.run(function, *handle.arguments)
            except BaseException as error:
                watcher.failed(process, f"in {function}", error)
            self._current = None
            if process is None:
                continue
            if process.turn_s or process.is_busy:
                process.is_busy = True
                self.later(process.turn_s, self._end_turn, process)
            if getattr(function, "__func__", None) is watched and process.is_alive:
                watcher.stepped(process)

    def _end_turn(self, process: Process) -> None:
        """Run the callback of a slow process that has waited longest."""
        while process.deferred and not process.is_paused:
            handle = process.deferred.popleft()
            if not handle._is_cancelled:
                process.next = handle
                self._ready.appendleft(handle)
                return
        process.is_busy = False

    @contextlib.contextmanager
    def on_a_thread(self) -> Iterator[None]:
        """Treat the code in the ``with`` block as running on another thread than the loop's."""
        before, self.is_on_a_thread = self.is_on_a_thread, True
        try:
            yield
        finally:
            self.is_on_a_thread = before

    # Processes.

    def start_in(self, process: Process, work: Coroutine[object, object, Result]) -> asyncio.Task[Result]:
        context = process.context.copy()
        task = asyncio.Task(work, loop=self, context=context)
        process.tasks.append(task)
        return task

    def pause(self, process: Process) -> None:
        """Run no callback of the process until ``resume``."""
        process.is_paused = True

    def resume(self, process: Process) -> None:
        """Continue the process: callbacks that became due during the pause run now, in order."""
        process.is_paused = False
        self._ready.extend(process.deferred)
        process.deferred.clear()

    def kill(self, process: Process) -> None:
        """Never run any callback of the process again."""
        process.is_alive = False
        process.deferred.clear()
        self._graveyard.append(process)

    # The interface of asyncio's loops.

    def create_future(self) -> Future[object]:
        """Create a future that belongs to this loop and to the running process."""
        future = _Future(loop=self)
        future.process = self._current
        return future

    def create_task(
        self,
        coro: Generator[object, None, Result] | Coroutine[object, object, Result],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Result]:
        """Create a task that belongs to the running process."""
        awaitable = cast("Coroutine[object, object, Result]", coro)
        task = asyncio.Task(awaitable, loop=self, context=context)
        if self._current is not None:
            self._current.tasks.append(task)
        return task

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Arguments]], Result], *args: *Arguments
    ) -> Future[Result]:
        """Run a function as if another thread ran it: at one later moment."""
        future: Future[Result] = asyncio.Future(loop=self)

        def work() -> None:
            if future.cancelled():
                return
            try:
                with self.on_a_thread():
                    result = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._thread_latency(self._current), work)
        return future

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: object
    ) -> object:
        """Listen on a simulated host. Raises ``OSError`` if the run has no network of streams."""
        if self.listen is None or self._current is None:
            raise OSError("no process listens in this run")
        return self.listen(host, self._current, protocol_factory)

    get_debug = staticmethod(bool)  # never; every future and task asks, so it costs no call in Python

    def is_running(self) -> bool:
        """True until the loop is closed."""
        return not self._is_closed

    def is_closed(self) -> bool:
        """True if ``close`` was called."""
        return self._is_closed

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """Report an exception that was never retrieved. Exceptions of dead processes are ignored, because
        their callbacks no longer run.
        """
        task = context.get("task") or context.get("future")
        process = task.process if isinstance(task, _Future) else None
        if not self._is_closed and (process is None or process.is_alive):
            error = context.get("exception")
            message = f"{context['message']}: {task}"
            self._watcher.failed(self._current, message, error if isinstance(error, BaseException) else None)

    def close(self) -> None:
        """Discard all callbacks and timers; close waiting tasks without a message."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        before = events._get_running_loop()
        events._set_running_loop(self)
        closed: set[asyncio.Task[object]] = set()
        while begun := asyncio.all_tasks(self) - closed:  # a task may start others while it ends
            closed |= begun
            for task in begun:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(RuntimeError):  # it waits while it ends
                    task.get_coro().close()
        events._set_running_loop(before)


class _Future(asyncio.Future[object]):
    __slots__ = ("process",)
    process: Process | None


_NOBODY = contextvars.Context()
