"""Sends the batches of a response: one thread reads and checks the batches, and writes them to the socket.

The event loop sends the head and the first piece, which has been read, so that the client has work while the
thread starts. The thread uses its own descriptor of the connection, because the transport may close its
descriptor at any time. The thread ends when all bytes are sent, or when the socket is full; then the loop
waits until the client has read, and starts a thread again. A response that cannot be completed is shorter
than its ``Content-Length``, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import enum
import socket
from typing import Final, cast

from api.http.batch_answers import BatchesAnswer
from broker.listeners.answers_in_flight import AnswersInFlight
from raftlog.node.reading import PIECE_BYTES, READ_FAILURES, on_thread

_NOW: Final = getattr(socket, "MSG_DONTWAIT", 0)  # the connection is non-blocking in any case
_MORE: Final = getattr(socket, "MSG_MORE", 0)


class _Sent(enum.Enum):
    ALL = enum.auto()
    TILL_FULL = enum.auto()  # the socket takes no more bytes for now
    SHORT = enum.auto()  # the client has disconnected, or the unread batches are damaged


class BatchSender:
    """Sends one response; its batches are read while it is sent."""

    def __init__(
        self, transport: asyncio.Transport, head: bytes, answer: BatchesAnswer, answers: AnswersInFlight
    ) -> None:
        """The transport must have sent all bytes of earlier responses."""
        self._socket = cast("socket.socket", transport.get_extra_info("socket")).dup()
        self._abort = transport.abort
        self._answers = answers
        self._rest = answer.rest
        self._unsent = [memoryview(head), answer.first]
        self._held_bytes = PIECE_BYTES
        self._failure: Exception | None = None
        self._is_stopped = False
        self._room: asyncio.Future[None] | None = None
        self._turn: asyncio.Future[_Sent] | None = None

    async def send(self) -> bool:
        """Send the response; return True if all of it was sent, False if sending ended early."""
        try:
            sent = self._send_unsent()
            while sent is _Sent.TILL_FULL or self._turn is None:
                if sent is _Sent.TILL_FULL:
                    await self._have_room()
                sent = await self._send_more()
        except READ_FAILURES as error:  # for example when no thread can start
            sent, self._failure = _Sent.SHORT, error
        finally:
            self.stop()
            self._close()
        if self._failure is not None:
            self._rest.failed(self._failure)
        return sent is _Sent.ALL

    def stop(self) -> None:
        """End sending early, because the connection has been closed."""
        self._is_stopped = True
        self._end_wait()

    def _end_wait(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def _send_more(self) -> _Sent:
        """Send on a thread. The call is not cancelled while the thread uses the descriptor."""
        self._turn = asyncio.ensure_future(on_thread(self._send_until_full))
        return await asyncio.shield(self._turn)

    def _close(self) -> None:
        """Close this object's descriptor once no thread uses it."""
        if self._turn is None or self._turn.done():
            self._socket.close()
        else:
            self._turn.add_done_callback(lambda _: self._socket.close())

    async def _have_room(self) -> None:
        """Return when the socket has room for bytes, or the connection is closed."""
        loop = asyncio.get_running_loop()
        self._room = loop.create_future()
        loop.add_writer(self._socket, self._end_wait)
        try:
            with self._answers.waiting(self._held_bytes, self._abort):
                await self._room
        finally:
            loop.remove_writer(self._socket)

    def _send_until_full(self) -> _Sent:
        """Send until the socket is full or the response is complete; called on a thread."""
        sent = self._send_unsent()
        while sent is _Sent.ALL and self._rest.left_bytes and not self._is_stopped:
            sent = self._send_next()
        return _Sent.SHORT if self._is_stopped else sent

    def _send_next(self) -> _Sent:
        try:
            piece = self._rest.next()
        except READ_FAILURES as error:
            self._failure = error
            return _Sent.SHORT
        self._held_bytes = max(self._held_bytes, len(piece))
        self._unsent = [piece]
        return self._send_unsent()

    def _send_unsent(self) -> _Sent:
        """Send the bytes that were read but not sent yet."""
        while self._unsent:
            try:
                sent = self._socket.sendmsg(self._unsent, (), _NOW | (_MORE if self._rest.left_bytes else 0))
            except BlockingIOError:
                return _Sent.TILL_FULL
            except OSError:
                return _Sent.SHORT
            self._unsent = _behind(sent, self._unsent)
        return _Sent.ALL


def _behind(count: int, views: list[memoryview]) -> list[memoryview]:
    """Return views of the bytes that follow the first ``count`` bytes of ``views``."""
    while views and count >= len(views[0]):
        count -= len(views[0])
        views = views[1:]
    return [views[0][count:], *views[1:]] if views else []
