"""The newest metadata that a broker has shown, and the callers that wait for newer metadata.

The shown version never falls, even while the metadata log is replayed. All calls run on the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from partitions.metadata.image import MetadataImage
from raftlog.errors import Draining, NoLeader

Listener = Callable[[MetadataImage], None]
"""Callback for a new image. The callback must neither block nor raise."""


class ShownImage:
    """The newest image that this broker shows, the listeners, and the callers that wait for a version."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._listeners: list[Listener] = []
        self._waiters: dict[int, tuple[int, asyncio.Future[None]]] = {}
        self._waiter_ids = count()

    @property
    def waiting(self) -> int:
        """The number of callers that wait for a version."""
        return len(self._waiters)

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with every new image."""
        self._listeners.append(listener)

    def changed(self, image: MetadataImage) -> None:
        """Show the image that the metadata group has just reached; ignore an older image."""
        if image.version < self.image.version:
            return  # the log is being replayed
        self.image = image
        for listener in self._listeners:
            listener(image)
        for version, future in self._waiters.values():
            if image.version >= version and not future.done():
                future.set_result(None)

    async def wait_for(self, version: int, timeout_ms: float) -> None:
        """Return once ``image`` has at least this version. Raises ``NoLeader`` after ``timeout_ms``."""
        if self.image.version >= version:
            return
        waiter = next(self._waiter_ids)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = (version, future)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            raise NoLeader(
                f"this broker has metadata version {self.image.version} and still waits for {version}; retry"
            ) from None
        finally:
            del self._waiters[waiter]

    def close(self) -> None:
        """Fail all waits for a version: this broker is stopping."""
        for _, future in self._waiters.values():
            if not future.done():
                future.set_exception(Draining("this broker is stopping"))
