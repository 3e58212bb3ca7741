"""Duties of a broker: work in the background that begins again after an unexpected error.

Decides: which errors cost a duty a pause only, and how long the pause is. Leaves to others: what a duty does.
A duty keeps what it must not lose outside of the coroutine that fails, and may repeat what it has done.

All brokers of a cluster do the same work: an error that ended the process of one could end all of them.
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
AGAIN_S_MAX: Final = 60.0  # a duty that has run for so long begins with the shortest pause

Arguments = ParamSpec("Arguments")


class Duties:
    """The duties of one broker. ``on_failed`` is called with the name of a duty and its unexpected error."""

    def __init__(self, is_fatal: Callable[[], bool]) -> None:
        """``is_fatal`` says whether an invariant is broken: then no duty begins again."""
        self.failures = 0  # unexpected errors so far
        self.on_failed: Callable[[str, Exception], None] = lambda duty, error: None
        self._is_fatal = is_fatal

    async def keep(
        self,
        duty: Callable[Arguments, Coroutine[None, None, None]],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        """Carry out a duty until it returns. An unexpected error is logged, and the duty begins again.

        Raises what says that a log, a state or an invariant is wrong.
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
                self._failed(duty.__qualname__, error, f"begins again in {pause_s:g} s")
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_S_MAX)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Guard one step of a duty: after an unexpected error, which is logged, the next step follows.

        Raises what says that a log, a state or an invariant is wrong.
        """
        try:
            yield
        except Exception as error:
            if self._ends(error):
                raise
            self._failed(name, error, "is left for the next time")

    def _ends(self, error: Exception) -> bool:
        is_damage = isinstance(error, LogCorrupt | MachineFailed) and exhaustion(error) is None
        return is_damage or self._is_fatal()

    def _failed(self, name: str, error: Exception, what: str) -> None:
        self.failures += 1
        with contextlib.suppress(MemoryError):  # there may be none for the log line either
            _log.error("%s %s after an unexpected error", name, what, exc_info=error)
        self.on_failed(name, error)
