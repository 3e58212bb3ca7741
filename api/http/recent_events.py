"""Keeps the most recent pages of event streams as bytes, for other readers of these records.

Decides: which pages are kept, and that a page which several readers want is built once. Leaves to others: the
key of a page, and building it (``api.resources.events``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from types import TracebackType
from typing import NamedTuple, Protocol


class ShownPage(NamedTuple):
    """A page of records as events, and the offset after the page. Its builder keeps ``open_bytes`` for the
    next page.
    """

    events: bytes
    next_offset: int
    open_bytes: int


class Place(Protocol):
    """The right to build a large page, which few requests have at a time; see ``Turn``."""

    async def begin(self) -> None:
        """Wait until a large page may be built."""


class RecentEvents:
    """The kept pages of one broker, within a limit of bytes."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size_bytes = 0
        self._kept: dict[Hashable, ShownPage] = {}  # oldest first
        self._under_construction: dict[Hashable, asyncio.Future[ShownPage | None]] = {}

    def page(self, key: Hashable) -> RecentPage:
        """Create the access of one reader to the page with this key."""
        return RecentPage(self, key)

    def get(self, key: Hashable) -> ShownPage | None:
        """Return the page; None if it is not kept."""
        return self._kept.get(key)

    def keep(self, key: Hashable, page: ShownPage) -> None:
        """Keep a page, and remove the oldest pages beyond the limit. A page without events, or larger than
        the limit, is not kept.
        """
        size_bytes = len(page.events)
        if not 0 < size_bytes <= self._bytes_max or key in self._kept:
            return
        self._kept[key] = page._replace(open_bytes=0)
        self._size_bytes += size_bytes
        while self._size_bytes > self._bytes_max:
            self._size_bytes -= len(self._kept.pop(next(iter(self._kept))).events)

    def under_construction(self, key: Hashable) -> asyncio.Future[ShownPage | None] | None:
        """Return the future for the page that a reader is building, or None. The result of the future is None
        if building fails.
        """
        return self._under_construction.get(key)

    def begin(self, key: Hashable) -> None:
        """Note that a reader builds the page, until ``end`` is called."""
        self._under_construction[key] = asyncio.get_running_loop().create_future()

    def end(self, key: Hashable, page: ShownPage | None) -> None:
        """Note that the reader has built the page, or that building has failed."""
        self._under_construction.pop(key).set_result(page and page._replace(open_bytes=0))


class RecentPage:
    """The access of one reader to a page. Either the page is found, or this reader builds it before the block
    ends.
    """

    __slots__ = ("_is_building", "_key", "_recent")

    def __init__(self, recent: RecentEvents, key: Hashable) -> None:
        self._recent = recent
        self._key = key
        self._is_building = False

    async def found(self, place: Place, *, is_short: bool) -> ShownPage | None:
        """Return the page; None if this reader must build it. Then the reader has a place, unless building
        ``is_short``.

        The place is taken before building begins, so a builder never waits for a place that readers of its
        page may hold.
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
        """Keep the page that this reader has built, and give it to the readers that wait for it."""
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
