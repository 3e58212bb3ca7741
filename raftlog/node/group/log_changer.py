"""Changes of one group's log that wait for the disk: one at a time, and never during a sync.

Decides the order of changes: a cut before all other changes, since appends wait for it, and removals that
free room last. Leaves to others: what a change does (``raftlog.storage.log_storage``), when it runs
(``flusher``), and its consequences.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from raftlog.storage.log_storage import ChangeableLog, LogChange


class LogChanger:
    """Carries out the changes of one log. All methods belong to the event loop's thread."""

    def __init__(self, log: ChangeableLog) -> None:
        self._log = log
        self._waiting: deque[tuple[Callable[[], LogChange | None], asyncio.Future[None]]] = deque()
        self._running: tuple[LogChange, asyncio.Future[None] | None] | None = None
        self._has_left, self._is_cut_wanted = False, True

    @property
    def is_running(self) -> bool:
        """Whether a change was given to the disk and has not ended."""
        return self._running is not None

    def ask(self, begin: Callable[[], LogChange | None]) -> asyncio.Future[None]:
        """Queue a change; the future is done once it is finished, has failed, or was dropped by ``leave``.

        ``begin`` is called when it is the change's turn; it returns None if there is nothing to change.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((begin, future))
        return future

    def begin(self) -> LogChange | None:
        """The change to run next; None if no change waits. Raises the errors of the change's ``begin``."""
        change = self._log.cut_change() if self._is_cut_wanted else None
        if change is not None:
            self._running = (change, None)
            return change
        while self._waiting:
            begin, future = self._waiting.popleft()
            try:
                change = begin()
            finally:
                if change is None:
                    _end(future)
            if change is not None:
                self._running = (change, future)
                return change
        change = self._log.removal_change()
        if change is not None:
            self._running = (change, None)
        return change

    def end(self, error: OSError | None) -> bool:
        """End the change that has run; return whether other changes wait.

        Raises ``error`` or ``LogCorrupt``.
        """
        assert self._running is not None
        (change, future), self._running = self._running, None
        more = None
        try:
            if error is not None:
                change.give_up()
                self._is_cut_wanted = not self._has_left  # a failing cut would come before the close forever
                raise error
            more = change.finish()
        finally:
            if more is None and future is not None:
                _end(future)
        if more is not None:
            following = more
            self._waiting.appendleft((lambda: following, future or self._nobodys()))
        return bool(self._waiting)

    def leave(self) -> None:
        """Drop the changes that have not begun."""
        self._has_left = True
        while self._waiting:
            _end(self._waiting.popleft()[1])

    def _nobodys(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
