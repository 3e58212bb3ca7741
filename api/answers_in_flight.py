"""The memory of answers: while they are made, and until their clients have taken them.

Decides: how many large pages are made at the same time, and whose connection ends when clients leave too
much untaken. That is the one whose answer has waited longest: its client reads least.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar

from raftlog.node.computing import computed

LARGE_PAGES_MAX: Final = 4
Result = TypeVar("Result")


class AnswersInFlight:
    """Those of one broker. ``untaken_bytes`` never stays above ``untaken_bytes_max`` but for one answer."""

    def __init__(self, untaken_bytes_max: int) -> None:
        self.untaken_bytes = 0
        self._untaken_bytes_max = untaken_bytes_max
        self._untaken: dict[object, tuple[int, Callable[[], None]]] = {}  # the oldest first
        self._places = asyncio.Semaphore(LARGE_PAGES_MAX)

    def turn(self, is_wanted: Callable[[], bool]) -> Turn:
        """What one request makes of records, from the first page to the answer, while it is wanted."""
        return Turn(self._places, is_wanted)

    def wait(self, owner: object, size_bytes: int, abort: Callable[[], None]) -> None:
        """An answer waits for its client; ``abort`` ends the connection, and so the waiting."""
        self.taken(owner)
        self._untaken[owner] = (size_bytes, abort)
        self.untaken_bytes += size_bytes
        while self.untaken_bytes > self._untaken_bytes_max and len(self._untaken) > 1:
            oldest = next(iter(self._untaken))
            _, end = self._untaken[oldest]
            self.taken(oldest)
            end()

    def taken(self, owner: object) -> None:
        """It has left, or its client has."""
        size_bytes, _ = self._untaken.pop(owner, (0, None))
        self.untaken_bytes -= size_bytes

    @contextmanager
    def waiting(self, size_bytes: int, abort: Callable[[], None]) -> Iterator[None]:
        """The same for a writer that waits itself."""
        owner = object()
        self.wait(owner, size_bytes, abort)
        try:
            yield
        finally:
            self.taken(owner)


class Turn:
    """Takes one of few places when work is long, and keeps it until the block ends: pages do not pile up."""

    __slots__ = ("_has_place", "_is_wanted", "_places")

    def __init__(self, places: asyncio.Semaphore, is_wanted: Callable[[], bool]) -> None:
        self._places = places
        self._is_wanted = is_wanted
        self._has_place = False

    async def computed(self, work: Callable[[], Result], *, is_short: bool) -> Result:
        """``computed``, once there is a place. Raises ``ConnectionResetError`` when the client has gone."""
        if not is_short and not self._has_place:
            await self._places.acquire()
            self._has_place = True
        if not is_short and not self._is_wanted():
            raise ConnectionResetError("the client has gone")
        return await computed(work, is_short=is_short)

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_place:
            self._has_place = False
            self._places.release()
