"""One TCP connection between two nodes: first the handshake, then frames in one direction.

The side that dialled sends frames, the side that listens receives them. A connection decides
only whether its peer is proven or refused. Leaves to others (its owner, a ``ConnectionOwner``): dialling
again, replacing an older connection, and reports to the layer above.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, cast

from raftlog.node.codec import MalformedFrame
from raftlog.node.network.framing import HEADER_BYTES, FrameDamaged, FrameParser, frame_header
from raftlog.node.network.handshake import Handshake, HandshakeRefused
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId

WRITE_BYTES = 1024 * 1024
"""The maximum number of bytes that are passed to the operating system at once."""

_JOIN_BELOW_MEAN_BYTES = 1024
"""The mean size in bytes below which buffers are copied into one buffer before a write.

Measured under uvloop: 1,000 buffers of 100 bytes are sent in half the time when joined. From 1,000 bytes on,
joining makes no difference, and buffers of 100 KB are sent a fifth faster when not copied.
"""


KEEPALIVE_S: Final = 1
"""The interval in seconds at which an idle connection checks that the other machine is alive."""


class ConnectionOwner(Protocol):
    """Receives the events of a connection."""

    def connection_proven(self, connection: Connection) -> None:
        """Handle a successful handshake: the other end is ``connection.peer``."""

    def connection_refused(self, connection: Connection, reason: str, detail: str = "") -> None:
        """Handle the refusal of a connection for ``reason``; ``connection_closed`` follows.

        ``detail`` is a sentence for people.
        """

    def connection_closed(self, connection: Connection) -> None:
        """Handle the end of a connection; called once for every connection that was made, proven or not."""


class Connection(asyncio.BufferedProtocol):
    """The part that both directions have in common: the handshake, its time limit, and the end."""

    def __init__(
        self,
        handshake: Handshake,
        owner: ConnectionOwner,
        handshake_limit_ms: int,
        unacknowledged_limit_ms: int,
    ) -> None:
        self._handshake = handshake
        self._owner = owner
        self._handshake_limit_ms = handshake_limit_ms
        self._unacknowledged_limit_ms = unacknowledged_limit_ms
        self._message = memoryview(bytearray(handshake.bytes_expected))
        self._message_filled = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.remote_address = "?"
        self.claimed_node: int = handshake.peer
        self.is_proven = False
        self.is_closed = False
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def peer(self) -> NodeId:
        """The node at the other end; proven once ``is_proven``."""
        return self._handshake.peer

    @property
    def process(self) -> bytes:
        """The random bytes of the process at the other end; proven once ``is_proven``."""
        return self._handshake.process

    @property
    def is_open(self) -> bool:
        """Whether frames may be sent or received."""
        return self.is_proven and not self.is_closed

    @property
    def is_made(self) -> bool:
        """Whether a TCP connection was made; then the future ``closed`` will be done at its end."""
        return self._transport is not None

    def abort(self) -> None:
        """Close the connection at once; queued frames are lost and no more are delivered. Idempotent."""
        self.is_closed = True
        self._cancel_deadline()
        if self._transport is not None:
            self._transport.abort()

    def refuse(self, reason: str, last_words: bytes = b"", detail: str = "") -> None:
        """Report the reason of a refusal to the owner, and close the connection."""
        self._owner.connection_refused(self, reason, detail)
        if last_words and self._transport is not None:
            # Shorter than any socket buffer, so an orderly close cannot hang.
            self.is_closed = True
            self._cancel_deadline()
            self._transport.write(last_words)
            self._transport.close()
        else:
            self.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the greeting, and start the time limit. (asyncio and uvloop set TCP_NODELAY themselves.)"""
        # uvloop's transports have these methods, but another base class.
        self._transport = transport = cast("asyncio.Transport", transport)
        if self.is_closed:
            transport.abort()
            return
        _end_unless_acknowledged(transport.get_extra_info("socket"), self._unacknowledged_limit_ms)
        address = transport.get_extra_info("peername")
        self.remote_address = f"{address[0]}:{address[1]}" if address else "?"
        self._deadline = asyncio.get_running_loop().call_later(
            self._handshake_limit_ms / 1000, self.refuse, "handshake_took_too_long"
        )
        transport.write(self._handshake.greeting())

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the handshake: before the proof it has room for exactly one message."""
        return self._message[self._message_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes of the handshake in the memory from ``get_buffer``."""
        if self.is_closed:
            return
        self._message_filled += nbytes
        if self._message_filled == len(self._message):
            self._handshake_message(bytes(self._message))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection to the owner."""
        if not self.is_closed and not self.is_proven:
            self._owner.connection_refused(self, "closed_during_handshake")
        self.is_closed = True
        self._cancel_deadline()
        self.closed.set_result(None)
        self._owner.connection_closed(self)

    def _handshake_message(self, message: bytes) -> None:
        assert self._transport is not None
        try:
            answer = self._handshake.receive(message)
        except HandshakeRefused as refusal:
            self.claimed_node = refusal.claimed
            self.refuse(refusal.reason, refusal.answer, refusal.detail)
            return
        if answer:
            self._transport.write(answer)
        self._message_filled = 0
        self._message = memoryview(bytearray(self._handshake.bytes_expected))
        if self._handshake.bytes_expected == 0:
            self._cancel_deadline()
            self.is_proven = True
            self._owner.connection_proven(self)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class InboundConnection(Connection):
    """The listener's side: receives frames. The owner calls ``receive_frames`` when the peer is proven."""

    _parser: FrameParser

    def receive_frames(
        self, deliver: Callable[[memoryview], None], heard: Callable[[], None], frame_bytes_max: int
    ) -> None:
        """Pass every whole frame to ``deliver`` from now on, and call ``heard`` after each read."""
        self._heard = heard
        self._parser = FrameParser(deliver, frame_bytes_max)

    def abort(self) -> None:
        """Close the connection at once, and deliver no more frames, even during a read."""
        if self.is_proven:
            self._parser.stop()
        super().abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next bytes: of the handshake, or after the proof of the frame parser."""
        return self._parser.get_buffer() if self.is_proven else super().get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes of the handshake, or after the proof bytes of frames."""
        if not self.is_proven:
            super().buffer_updated(nbytes)
            return
        if self.is_closed:
            return
        self._heard()
        try:
            self._parser.buffer_updated(nbytes)
        except FrameDamaged as damage:
            self.refuse(damage.reason)
        except MalformedFrame:  # its text may quote the frame, so it is not logged
            self.refuse("malformed_frame")


class OutboundConnection(Connection):
    """The dialler's side: sends frames, and receives nothing after the handshake.

    Frames wait here and not in asyncio's transport, which copies its whole buffer when it grows.
    """

    def __init__(
        self,
        handshake: Handshake,
        owner: ConnectionOwner,
        handshake_limit_ms: int,
        unacknowledged_limit_ms: int,
    ) -> None:
        super().__init__(handshake, owner, handshake_limit_ms, unacknowledged_limit_ms)
        self._queue: deque[Buffer] = deque()
        self._queue_bytes = 0
        self._is_flush_due = False
        self._is_paused = False
        self._unexpected = memoryview(bytearray(1))

    @property
    def queued_bytes(self) -> int:
        """The number of bytes that the operating system has not yet accepted."""
        if self._transport is None:
            return 0
        return self._queue_bytes + self._transport.get_write_buffer_size()

    def send(self, buffers: Sequence[Buffer], length: int, queue_bytes_max: int) -> bool:
        """Queue one frame; all frames that are queued within one turn of the loop are sent in one write.

        Returns False if the connection is not open, or the queue would exceed ``queue_bytes_max``.
        """
        transport = self._transport
        if not self.is_proven or self.is_closed or transport is None:
            return False
        queued_bytes = self._queue_bytes + transport.get_write_buffer_size()
        if queued_bytes + HEADER_BYTES + length > queue_bytes_max:
            return False
        self._queue.append(frame_header(buffers, length))
        if length <= WRITE_BYTES:
            self._queue.extend(buffers)
        else:
            self._queue.extend(_pieces(buffers))
        self._queue_bytes += HEADER_BYTES + length
        if not self._is_flush_due and not self._is_paused:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)
        return True

    def pause_writing(self) -> None:
        """Stop writing: the operating system accepts no more bytes for now."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Continue writing: the operating system accepts more bytes again."""
        self._is_paused = False
        self._flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make asyncio request a pause as soon as the system does not accept a write at once."""
        super().connection_made(transport)
        if self._transport is not None and not self.is_closed:
            self._transport.set_write_buffer_limits(high=WRITE_BYTES)

    def _flush(self) -> None:
        self._is_flush_due = False
        transport = self._transport
        assert transport is not None
        while self._queue and not self._is_paused and not self.is_closed:
            buffers = self._next_buffers()
            if sum(map(len, buffers)) < _JOIN_BELOW_MEAN_BYTES * len(buffers):
                transport.write(b"".join(buffers))
            else:
                transport.writelines(buffers)

    def _next_buffers(self) -> list[Buffer]:
        """Remove and return the buffers of one write: all buffers, unless they exceed ``WRITE_BYTES``."""
        queue = self._queue
        if self._queue_bytes <= WRITE_BYTES:
            buffers = list(queue)
            queue.clear()
            self._queue_bytes = 0
            return buffers
        buffers = [queue.popleft()]
        taken_bytes = len(buffers[0])
        while queue and taken_bytes + len(queue[0]) <= WRITE_BYTES:
            taken_bytes += len(queue[0])
            buffers.append(queue.popleft())
        self._queue_bytes -= taken_bytes
        return buffers

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next bytes; after the proof no bytes may arrive."""
        return self._unexpected if self.is_proven else super().get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes of the handshake; bytes after the proof end the connection."""
        if not self.is_proven:
            super().buffer_updated(nbytes)
        elif not self.is_closed:
            self.refuse("bytes_from_the_listener")


def _end_unless_acknowledged(connected: socket.socket, limit_ms: int) -> None:
    """Make the kernel end a connection whose other machine acknowledges no bytes for ``limit_ms``.

    Without this limit, Linux retransmits for a quarter of an hour, at ever longer intervals. Options that a
    platform lacks are skipped: the layer above also ends silent connections.
    """
    options = (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", KEEPALIVE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPALIVE", KEEPALIVE_S),  # the name on macOS for TCP_KEEPIDLE
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", KEEPALIVE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", max(1, limit_ms // 1000 // KEEPALIVE_S)),
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", limit_ms),
    )
    for level, name, value in options:
        number = getattr(socket, name, None)
        if number is not None:
            with contextlib.suppress(OSError):  # the other side may have closed the connection already
                connected.setsockopt(level, number, value)


def _pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    for buffer in buffers:
        for start in range(0, len(buffer), WRITE_BYTES):
            yield memoryview(buffer)[start : start + WRITE_BYTES]
