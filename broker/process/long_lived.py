"""Keeps full garbage collections away from the objects of replicas.

Decides: which objects the garbage collector searches. A replica is some 160 objects that live as long as it
is open. With thousands of them one full collection holds the event loop for as long as an election timeout:
peers take the broker for dead. So the objects of replicas that were opened are set apart (``gc.freeze``).
Those of closed replicas refer to each other and are found by a search of everything only, which is made
once as many were closed as makes it worth its time.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 1.0
OPENED_MIN: Final = 100  # a collection of their objects takes some 10 ms
CLOSED_MIN: Final = 1000  # 26 MB


class LongLived:
    """Sets the objects of new replicas apart, every ``LOOK_S`` until ``stop``.

    ``counts`` tells how many replicas were opened since the start, and how many are open now.
    """

    def __init__(self, counts: Callable[[], tuple[int, int]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._counts = counts
        self._opened = 0  # when objects were last set apart
        self._closed = 0  # when everything was last searched
        self._handle = self._wait()

    def stop(self) -> None:
        self._handle.cancel()

    def set_apart(self) -> None:
        """Exclude all objects of this moment from the next collections."""
        self._opened, _ = self._counts()
        gc.freeze()

    def look(self) -> None:
        """Do what has become due."""
        opened, here = self._counts()
        if opened - here - self._closed >= max(CLOSED_MIN, here // 2):
            self._closed = opened - here
            gc.unfreeze()
            gc.collect()
            self.set_apart()
        elif opened - self._opened >= OPENED_MIN:
            gc.collect(1)  # what is garbage already would never be found
            self.set_apart()

    def _wait(self) -> asyncio.TimerHandle:
        return self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self.look()
        self._handle = self._wait()
