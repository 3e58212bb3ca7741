"""Limits the memory of batches in delivery on one broker.

Decides: which batches wait. Repeated batches have a separate room, so that targets without a leader do not
delay deliveries to other targets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

ROOM_BYTES: Final = 32 << 20  # of messages; each of the two rooms


class MoveRoom:
    """Room in bytes for batches in delivery, shared by all coordinators of a broker."""

    def __init__(self, bytes_max: int = ROOM_BYTES) -> None:
        self._first, self._again = _Room(bytes_max), _Room(bytes_max)

    @asynccontextmanager
    async def held(self, size_bytes: int, *, is_repeated: bool) -> AsyncIterator[None]:
        """Wait for room in the order of the calls, and hold the room.

        A batch larger than all room is moved alone.
        """
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
        self._turn = asyncio.Lock()  # its holder gets room next
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
