"""Reads a body of known length from the socket into the buffer that its handler gets.

Decides: how far the buffer grows before bytes arrive, and how many bytes a client may send before the handler
asks for them. Leaves to others: limits, and how long to wait (``bodies``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STEP_BYTES: Final = 256 << 10  # the buffer grows by at most this: an announced size alone costs no memory
AHEAD_BYTES_MAX: Final = 256 << 10  # bytes of a body that its handler has not asked for
_ZEROS: Final = memoryview(bytes(STEP_BYTES))


class WholeBody:
    """A body of known length. ``missing`` is the number of bytes that have not arrived."""

    __slots__ = ("_buffer", "_error", "_filled", "_is_dropped", "_read", "_resume", "_waiter", "missing")

    def __init__(self, beginning: memoryview, length: int, resume: Callable[[], None]) -> None:
        """``resume`` is called when the handler waits for more bytes than have arrived."""
        self.missing = length - len(beginning)
        self._buffer = bytearray(beginning)
        self._filled = len(beginning)  # bytes that have arrived
        self._read = 0  # bytes that the handler has read
        self._is_dropped = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._resume: Callable[[], None] | None = resume  # None once the handler has waited

    # Methods for the connection.

    @property
    def is_ahead(self) -> bool:
        """Whether reading should pause until the handler asks for more bytes."""
        return self._resume is not None and self.missing > 0 and self._filled >= AHEAD_BYTES_MAX

    def room(self) -> memoryview | None:
        """Return the memory for the next bytes of the body; None if the body was dropped."""
        if self._is_dropped:
            return None
        if self._filled == len(self._buffer):
            self._buffer += _ZEROS[: min(self.missing, STEP_BYTES)]
        return memoryview(self._buffer)[self._filled :]

    def arrived(self, count: int) -> None:
        """Note that ``count`` bytes were written to the memory that ``room`` returned."""
        self.missing -= count
        self._filled += count
        _wake(self._waiter)

    def fail(self, error: BaseException) -> None:
        """End the body with an error, because the rest will not arrive."""
        self._error = error
        _wake(self._waiter)

    def drop(self) -> None:
        """Drop the rest of the body, which may still arrive, because the request has its response."""
        self._is_dropped, self._resume = True, None
        self._buffer = bytearray()

    # Methods for the handler.

    def news(self) -> int:
        """Return the number of bytes of the body that have arrived since the last call."""
        count = self._filled - self._read
        self._read = self._filled
        return count

    async def more(self, deadline: float | None) -> None:
        """Return once more bytes have arrived.

        Raises ``TimeoutError`` at ``deadline``, a time of the event loop, and the error that has ended the
        body.
        """
        if self._error is not None:
            raise self._error
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if deadline is None else loop.call_at(deadline, _expire, self._waiter)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()

    def whole(self) -> bytearray:
        """Return the complete body. Call this only when no bytes are missing. The caller may write to the
        buffer.
        """
        return self._buffer

    # Methods of ``Body``, for handlers that read pieces.

    def is_eof(self) -> bool:
        """True once all bytes of the body have been read."""
        return not self.missing and self._read == self._filled

    def exception(self) -> BaseException | None:
        """The error that ended the body early; None if no error did."""
        return self._error

    def read_nowait(self, n: int = -1, /) -> bytes:
        """Return the bytes of the body that have arrived since the last call."""
        begin = self._read
        return bytes(memoryview(self._buffer)[begin : begin + self.news()])

    async def readany(self) -> bytes:
        """Return the bytes that have arrived since the last call, or wait for the next bytes; empty at the
        end of the body.
        """
        while self._read == self._filled and self.missing:
            await self.more(None)
        return self.read_nowait()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
