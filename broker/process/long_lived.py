"""Excludes the objects of replicas from full garbage collections.

Decides: which objects the garbage collector searches. A replica has some 160 objects that exist as long as it
is open. With thousands of replicas, one full collection blocks the event loop for as long as an election
timeout, and peers consider the broker dead. So the objects of opened replicas are excluded (``gc.freeze``).
The objects of a closed replica refer to each other, and only a search of all objects finds them. This search
runs once enough replicas were closed.
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
    """Excludes the objects of new replicas from garbage collections, every ``LOOK_S`` until ``stop``.

    ``counts`` returns two numbers: the replicas opened since the start, and the replicas open now.
    """

    def __init__(self, counts: Callable[[], tuple[int, int]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._counts = counts
        self._opened = 0  # opened replicas when objects were last excluded
        self._closed = 0  # closed replicas when all objects were last searched
        self._handle = self._wait()

    def stop(self) -> None:
        self._handle.cancel()

    def set_apart(self) -> None:
        """Exclude all objects that exist now from later garbage collections."""
        self._opened, _ = self._counts()
        gc.freeze()

    def look(self) -> None:
        """If enough replicas were closed, search all objects for garbage; if enough were opened, exclude
        their objects.
        """
        opened, here = self._counts()
        if opened - here - self._closed >= max(CLOSED_MIN, here // 2):
            self._closed = opened - here
            gc.unfreeze()
            gc.collect()
            self.set_apart()
        elif opened - self._opened >= OPENED_MIN:
            gc.collect(1)  # collect garbage first: frozen garbage would never be found
            self.set_apart()

    def _wait(self) -> asyncio.TimerHandle:
        return self._loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self.look()
        self._handle = self._wait()
