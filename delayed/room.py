"""The memory that batches on their way to their targets may take on one broker.

Decides: who waits. Batches that were refused before share a room of their own, so that targets without a
leader hold back one another, and nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

ROOM_BYTES: Final = 32 << 20  # of messages; each of the two rooms


class MoveRoom:
    """Shared by all coordinators of a broker."""

    def __init__(self, bytes_max: int = ROOM_BYTES) -> None:
        self._first, self._again = _Room(bytes_max), _Room(bytes_max)

    @asynccontextmanager
    async def held(self, size_bytes: int, *, is_repeated: bool) -> AsyncIterator[None]:
        """Wait for room, in order, and hold it. A batch that is larger than the room goes alone."""
        room = self._again if is_repeated else self._first
        size_bytes = min(size_bytes, room.bytes_max)
        await room.take(size_bytes)
        try:
            yield
        finally:
            room.give_back(size_bytes)


class _Room:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._free = bytes_max
        self._turn = asyncio.Lock()  # who holds it is the next to get room
        self._freed = asyncio.Event()

    async def take(self, size_bytes: int) -> None:
        async with self._turn:
            while self._free < size_bytes:
                self._freed.clear()
                await self._freed.wait()
            self._free -= size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._free += size_bytes
        self._freed.set()
