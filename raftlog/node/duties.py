"""Duties of a broker: background work that restarts after an unexpected error.

Decides: after which errors a duty restarts, and after how long a pause. Leaves to others: the work of a duty.
A duty keeps data that it must not lose outside of the coroutine that fails, and may repeat its last work.

A duty must not end the process by an error: all brokers of a cluster do similar work, so an error that ended
the process of one broker could end all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, ParamSpec

from raftlog.errors import LogCorrupt, MachineFailed
from raftlog.exhaustion import exhaustion

_log = logging.getLogger("raftlog.node")

AGAIN_S_MIN: Final = 1.0  # doubled by every further error
AGAIN_S_MAX: Final = 60.0  # after running for so long, a duty gets the shortest pause again

Arguments = ParamSpec("Arguments")


class Duties:
    """The duties of one broker. ``on_failed`` receives the name of a failed duty and its unexpected error."""

    def __init__(self, is_fatal: Callable[[], bool]) -> None:
        """Start without duties. ``is_fatal``: whether an invariant is broken; then no duty restarts."""
        self.failures = 0  # unexpected errors so far
        self.on_failed: Callable[[str, Exception], None] = lambda duty, error: None
        self._is_fatal = is_fatal

    async def keep(
        self,
        duty: Callable[Arguments, Coroutine[None, None, None]],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        """Run a duty until it returns. After an unexpected error, log the error and restart the duty.

        An error that means that a log, a state or an invariant is broken is raised.
        """
        now, pause_s = asyncio.get_running_loop().time, AGAIN_S_MIN
        while True:
            began_s = now()
            try:
                await duty(*args, **kwargs)
            except Exception as error:
                if self._ends(error):
                    raise
                if now() - began_s >= AGAIN_S_MAX:
                    pause_s = AGAIN_S_MIN
                self._failed(duty.__qualname__, error, f"restarts in {pause_s:g} s")
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Guard one step of a duty: an unexpected error is logged, and the duty continues with its next step.

        An error that means that a log, a state or an invariant is broken is raised.
        """
        try:
            yield
        except Exception as error:
            if self._ends(error):
                raise
            self._failed(name, error, "is postponed")

    def _ends(self, error: Exception) -> bool:
        is_damage = isinstance(error, LogCorrupt | MachineFailed) and exhaustion(error) is None
        return is_damage or self._is_fatal()

    def _failed(self, name: str, error: Exception, what: str) -> None:
        self.failures += 1
        with contextlib.suppress(MemoryError):  # the log line may need memory, too
            _log.error("%s %s after an unexpected error", name, what, exc_info=error)
        self.on_failed(name, error)
