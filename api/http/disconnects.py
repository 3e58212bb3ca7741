"""Detects disconnected clients of waiting requests, and cancels these requests.

A handler that waits does not notice that its connection has closed. One timer for all waiting requests checks
their transports twice a second; it runs only while requests wait. Writes are never cancelled: a complete
request is stored even if its client has disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from api.http.requests import Request
from raftlog.errors import Draining

LOOK_EVERY_S = 0.5

T = TypeVar("T")


class DisconnectWatcher:
    """The waiting requests of one server, with the means to cancel them."""

    def __init__(self) -> None:
        self._parked: dict[asyncio.Future[Any], Request] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._parked)

    async def park(self, request: Request, waiting: Coroutine[None, None, T] | asyncio.Future[T]) -> T:
        """Return the result of ``waiting``, which is cancelled if the client of ``request`` disconnects.

        Raises ``ConnectionResetError`` if the client disconnects, and ``Draining`` when the server stops.
        """
        task = asyncio.ensure_future(waiting)
        self._parked[task] = request
        if self._is_closed:
            task.cancel()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)
        try:
            return await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # the handler itself is cancelled
            if self._is_closed:
                raise Draining("the broker is stopping; send the request to another broker") from None
            raise ConnectionResetError("the client has disconnected") from None
        finally:
            task.cancel()
            del self._parked[task]

    def close(self) -> None:
        """End the waits of all requests, because the server stops."""
        self._is_closed = True
        for task in self._parked:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        for task, request in self._parked.items():
            if not has_client(request):
                task.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_EVERY_S, self._look) if self._parked else None


def has_client(request: Request) -> bool:
    """True if the connection of a request is still open."""
    transport = request.transport
    return transport is not None and not transport.is_closing()
