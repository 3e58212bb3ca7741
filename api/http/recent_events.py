"""The most recent pages of event streams as bytes, for further readers of their records.

Decides: which pages are kept, and that a page which several readers want at the same time is built once.
Leaves to others: what identifies a page, and building it (``api.resources.events``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType
from typing import NamedTuple, Protocol


class ShownPage(NamedTuple):
    """A page as events, and the offset after it. Its builder holds ``open_bytes`` for the next page."""

    events: bytes
    next_offset: int
    open_bytes: int


class Place(Protocol):
    """The right to build a large page, of which there are few; see ``Turn``."""

    async def begin(self) -> None:
        """Wait for the place."""


class RecentEvents:
    """The pages of one broker, within a bound of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._kept: dict[Hashable, ShownPage] = {}  # oldest first
        self._under_construction: dict[Hashable, asyncio.Future[ShownPage | None]] = {}

    def page(self, key: Hashable) -> RecentPage:
        """One reader's way to the page with this key."""
        return RecentPage(self, key)

    def get(self, key: Hashable) -> ShownPage | None:
        """The page if it is kept."""
        return self._kept.get(key)

    def keep(self, key: Hashable, page: ShownPage) -> None:
        """Keep a page in place of the oldest, unless it has no events or exceeds the bound."""
        size_bytes = len(page.events)
        if not 0 < size_bytes <= self._bytes_max or key in self._kept:
            return
        self._kept[key] = page._replace(open_bytes=0)
        self._size_bytes += size_bytes
        while self._size_bytes > self._bytes_max:
            self._size_bytes -= len(self._kept.pop(next(iter(self._kept))).events)

    def under_construction(self, key: Hashable) -> asyncio.Future[ShownPage | None] | None:
        """The page that a reader builds now, if one does. The result is None if that fails."""
        return self._under_construction.get(key)

    def begin(self, key: Hashable) -> None:
        """A reader builds the page from now on, until ``end``."""
        self._under_construction[key] = asyncio.get_running_loop().create_future()

    def end(self, key: Hashable, page: ShownPage | None) -> None:
        """Note that the reader has built the page, or failed."""
        self._under_construction.pop(key).set_result(page and page._replace(open_bytes=0))


class RecentPage:
    """One reader's way to a page: found, or built by this reader before the block ends."""

    __slots__ = ("_is_building", "_key", "_recent")

    def __init__(self, recent: RecentEvents, key: Hashable) -> None:
        self._recent = recent
        self._key = key
        self._is_building = False

    async def found(self, place: Place, *, is_short: bool) -> ShownPage | None:
        """The page; None if this reader is to build it. It has its place then, unless building ``is_short``.

        So builders wait for nothing that those who wait for their pages may hold.
        """
        recent, key, has_place = self._recent, self._key, False
        while True:
            if (found := recent.get(key)) is not None or is_short:
                return found
            if (building := recent.under_construction(key)) is not None:
                if (found := await asyncio.shield(building)) is not None:
                    return found
            elif has_place:
                recent.begin(key)
                self._is_building = True
                return None
            else:
                await place.begin()
                has_place = True

    def built(self, page: ShownPage) -> None:
        """Keep the page that the reader has built, and give it to waiting readers."""
        self._recent.keep(self._key, page)
        self._end(page)

    def _end(self, page: ShownPage | None) -> None:
        if self._is_building:
            self._is_building = False
            self._recent.end(self._key, page)

    def __enter__(self) -> RecentPage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(None)
