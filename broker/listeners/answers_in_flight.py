"""Limits the memory of responses, from their creation until their clients have read them.

Decides: how many large pages are built at the same time. When pages and unread responses exceed the limit,
closes the connection whose response has been unread for the longest time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar

from raftlog.node.computing import computed

LARGE_PAGES_MAX: Final = 2  # a thread builds one; the other is handed to the thread or back
LARGE_PAGE_BYTES: Final = 48 << 20  # of one: its batches, a batch that is open, the page and its JSON
Result = TypeVar("Result")


class AnswersInFlight:
    """The responses of one broker that are being built or are unread; keeps their bytes within the limit.

    A single response may exceed the limit.
    """

    def __init__(self, untaken_bytes_max: int) -> None:
        self.untaken_bytes = 0
        self.large_pages = 0
        self._untaken_bytes_max = untaken_bytes_max
        self._untaken: dict[object, tuple[int, Callable[[], None]]] = {}  # oldest first
        self._places = asyncio.Semaphore(LARGE_PAGES_MAX)

    def turn(self, is_wanted: Callable[[], bool]) -> Turn:
        """Create the turn of one request, which lasts from its first page until the response is complete."""
        return Turn(self, is_wanted)

    @property
    def has_place(self) -> bool:
        """True if another large page can be built without waiting."""
        return not self._places.locked()

    async def begin_page(self, owner: object) -> None:
        """Wait for a place among the large pages, reserve memory for one, and release the bytes that the
        owner held while it waited.
        """
        await self._places.acquire()
        self.taken(owner)
        self.large_pages += 1
        self._make_room(0)

    def end_page(self) -> None:
        """Release a place among the large pages: the page has been written, or will not be written."""
        self.large_pages -= 1
        self._places.release()

    def wait(self, owner: object, size_bytes: int, abort: Callable[[], None]) -> None:
        """Count a response as unread until ``taken``. ``abort`` closes the connection of the response."""
        self.taken(owner)
        self._untaken[owner] = (size_bytes, abort)
        self.untaken_bytes += size_bytes
        self._make_room(1)

    def taken(self, owner: object) -> None:
        """Release a response that the client has read, or whose client has disconnected."""
        size_bytes, _ = self._untaken.pop(owner, (0, None))
        self.untaken_bytes -= size_bytes

    def _make_room(self, kept: int) -> None:
        """Close the connections with the oldest unread responses until the limit is met, but not the newest
        ``kept`` of them.
        """
        bytes_max = max(0, self._untaken_bytes_max - self.large_pages * LARGE_PAGE_BYTES)
        while self.untaken_bytes > bytes_max and len(self._untaken) > kept:
            oldest = next(iter(self._untaken))
            _, end = self._untaken[oldest]
            self.taken(oldest)
            end()

    @contextmanager
    def waiting(self, size_bytes: int, abort: Callable[[], None]) -> Iterator[None]:
        """Count a response as unread during the block, while its writer waits for the client; see
        ``wait``.
        """
        owner = object()
        self.wait(owner, size_bytes, abort)
        try:
            yield
        finally:
            self.taken(owner)


class Turn:
    """Holds one of a few places for large pages until the block ends, which limits the memory for pages."""

    __slots__ = ("_answers", "_has_place", "_is_wanted")

    def __init__(self, answers: AnswersInFlight, is_wanted: Callable[[], bool]) -> None:
        self._answers = answers
        self._is_wanted = is_wanted
        self._has_place = False

    @property
    def must_wait(self) -> bool:
        """True if a large page must wait for a place; the caller should release large objects before
        waiting.
        """
        return not self._has_place and not self._answers.has_place

    def wait(self, held_bytes: int, abort: Callable[[], None]) -> None:
        """Count ``held_bytes`` as unread until the turn takes or releases a place. ``abort`` closes the
        connection.
        """
        self._answers.wait(self, held_bytes, abort)

    async def begin(self) -> None:
        """Wait for a place. Raises ``ConnectionResetError`` if the client has disconnected."""
        if not self._has_place:
            await self._answers.begin_page(self)
            self._has_place = True
        if not self._is_wanted():
            raise ConnectionResetError("the client has disconnected")

    async def computed(self, work: Callable[[], Result], *, is_short: bool) -> Result:
        """Run ``work`` with the function ``computed``, once the turn has a place; short work needs no place.

        Raises ``ConnectionResetError`` if the client has disconnected.
        """
        if not is_short:
            await self.begin()
        return await computed(work, is_short=is_short)

    def end(self) -> None:
        """Release the place and the counted bytes; ``begin`` may take another place."""
        self._answers.taken(self)
        if self._has_place:
            self._has_place = False
            self._answers.end_page()

    def __enter__(self) -> Turn:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
