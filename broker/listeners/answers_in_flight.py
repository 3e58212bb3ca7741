"""Limits the memory of responses, from their creation until their clients have read them.

Decides: how many large pages are built at the same time, and which connection is closed when pages and unread
responses exceed the limit: the connection whose response has been unread for the longest time.
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
    """The responses of one broker; keeps unread responses and large pages within the limit.

    One response may exceed the limit.
    """

    def __init__(self, untaken_bytes_max: int) -> None:
        self.untaken_bytes = 0
        self.large_pages = 0
        self._untaken_bytes_max = untaken_bytes_max
        self._untaken: dict[object, tuple[int, Callable[[], None]]] = {}  # oldest first
        self._places = asyncio.Semaphore(LARGE_PAGES_MAX)

    def turn(self, is_wanted: Callable[[], bool]) -> Turn:
        """Create the turn of one request: from its first page to the response."""
        return Turn(self, is_wanted)

    @property
    def has_place(self) -> bool:
        """True if another large page can be built at once."""
        return not self._places.locked()

    async def begin_page(self, owner: object) -> None:
        """Wait for a place; reserve the memory of a large page, and release what the owner held."""
        await self._places.acquire()
        self.taken(owner)
        self.large_pages += 1
        self._make_room(0)

    def end_page(self) -> None:
        """Release the place: the page has been written, or will not be."""
        self.large_pages -= 1
        self._places.release()

    def wait(self, owner: object, size_bytes: int, abort: Callable[[], None]) -> None:
        """Count a response that waits for its client; ``abort`` closes the connection, which ends the
        wait.
        """
        self.taken(owner)
        self._untaken[owner] = (size_bytes, abort)
        self.untaken_bytes += size_bytes
        self._make_room(1)

    def taken(self, owner: object) -> None:
        """Release a response that the client has read, or whose client has disconnected."""
        size_bytes, _ = self._untaken.pop(owner, (0, None))
        self.untaken_bytes -= size_bytes

    def _make_room(self, kept: int) -> None:
        """Close the connections of the oldest responses until the limit is met; keeps the newest ``kept``."""
        bytes_max = max(0, self._untaken_bytes_max - self.large_pages * LARGE_PAGE_BYTES)
        while self.untaken_bytes > bytes_max and len(self._untaken) > kept:
            oldest = next(iter(self._untaken))
            _, end = self._untaken[oldest]
            self.taken(oldest)
            end()

    @contextmanager
    def waiting(self, size_bytes: int, abort: Callable[[], None]) -> Iterator[None]:
        """Count a response as unread during the block, in which its writer waits; see ``wait``."""
        owner = object()
        self.wait(owner, size_bytes, abort)
        try:
            yield
        finally:
            self.taken(owner)


class Turn:
    """Holds one of few places for long work until the block ends, so that pages do not pile up."""

    __slots__ = ("_answers", "_has_place", "_is_wanted")

    def __init__(self, answers: AnswersInFlight, is_wanted: Callable[[], bool]) -> None:
        self._answers = answers
        self._is_wanted = is_wanted
        self._has_place = False

    @property
    def must_wait(self) -> bool:
        """True if long work must wait for a place; the caller should release large objects before it
        waits.
        """
        return not self._has_place and not self._answers.has_place

    def wait(self, held_bytes: int, abort: Callable[[], None]) -> None:
        """Count bytes held until the place is taken or released; ``abort`` closes the connection."""
        self._answers.wait(self, held_bytes, abort)

    async def begin(self) -> None:
        """Take a place. Raises ``ConnectionResetError`` if the client has disconnected."""
        if not self._has_place:
            await self._answers.begin_page(self)
            self._has_place = True
        if not self._is_wanted():
            raise ConnectionResetError("the client has disconnected")

    async def computed(self, work: Callable[[], Result], *, is_short: bool) -> Result:
        """Run ``computed`` once there is a place; short work needs none.

        Raises ``ConnectionResetError`` if the client has disconnected.
        """
        if not is_short:
            await self.begin()
        return await computed(work, is_short=is_short)

    def end(self) -> None:
        """Release the place; ``begin`` may take another place."""
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
