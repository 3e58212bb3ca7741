"""Reads and writes the frames of the systems without HTTP: u32 length, u8 kind, u8 stream, payload.

A large payload is read directly into its own buffer, and all frames written in one turn of the loop are sent
in one system call.
"""

from __future__ import annotations

import asyncio
import struct
from typing import cast

FRAME = struct.Struct(">IBB")
SCRATCH_BYTES = 64 * 1024
PRODUCE, APPEND, APPENDED, DONE, WHO_LEADS = range(5)


class Frames(asyncio.BufferedProtocol):
    """One end of a connection, in a client or a server."""

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._end = 0
        self._large: memoryview | None = None  # the payload that is being read, and its head
        self._filled = 0
        self._head = (0, 0)
        self._out: list[bytes | memoryview] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without being subclasses.
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, size_hint: int) -> memoryview:
        """The buffer for the next bytes."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._end :]

    def buffer_updated(self, count: int) -> None:
        """Call ``frame`` for every complete frame."""
        if self._large is not None:
            self._filled += count
            if self._filled == len(self._large):
                payload, self._large = self._large, None
                self.frame(*self._head, payload)
            return
        self._end += count
        scratch, at = self._scratch, 0
        while self._end - at >= FRAME.size:
            length, kind, stream = FRAME.unpack_from(scratch, at)
            start, stop = at + FRAME.size, at + FRAME.size + length
            if stop > self._end:
                if stop - at > SCRATCH_BYTES // 4:
                    self._begin_large(length, kind, stream, scratch[start : self._end])
                    return
                break
            self.frame(kind, stream, memoryview(bytes(scratch[start:stop])))
            at = stop
        if at:
            rest = bytes(scratch[at : self._end])
            scratch[: len(rest)] = rest
            self._end = len(rest)

    def _begin_large(self, length: int, kind: int, stream: int, beginning: memoryview) -> None:
        self._large = memoryview(bytearray(length))
        self._filled = len(beginning)
        self._large[: self._filled] = beginning
        self._head = (kind, stream)
        self._end = 0

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        """Handle a received frame. The memory of the payload is never reused."""
        raise NotImplementedError

    def write(self, kind: int, stream: int, payload: bytes | memoryview = b"") -> None:
        """Send a frame, together with all other frames of this turn of the loop."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(FRAME.pack(len(payload), kind, stream))
        if payload:
            self._out.append(payload)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self.transport is not None:
            self.transport.writelines(out)


class FrameClient(Frames):
    """A connection of a client, which sends one batch at a time."""

    def __init__(self, stream: int, payload: bytes) -> None:
        super().__init__()
        self._stream = stream
        self._payload = payload
        self._done: asyncio.Future[bytes] | None = None

    def frame(self, kind: int, stream: int, payload: memoryview) -> None:
        """Complete the waiting request with the reply."""
        if self._done is not None and not self._done.done():
            self._done.set_result(bytes(payload))

    def connection_lost(self, error: Exception | None) -> None:
        """Let the waiting request fail."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("a bare process closed the connection"))

    async def ask(self, kind: int, payload: bytes) -> bytes:
        """Send one frame and return the payload of its reply."""
        self._done = asyncio.get_running_loop().create_future()
        self.write(kind, self._stream, payload)
        return await self._done

    async def send(self) -> None:
        """Send the batch and wait for its acknowledgement."""
        await self.ask(PRODUCE, self._payload)

    async def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


async def dial(port: int, stream: int, payload: bytes) -> FrameClient:
    """Connect a client to a process that may still be starting."""
    loop = asyncio.get_running_loop()
    for _ in range(200):
        try:
            _, client = await loop.create_connection(lambda: FrameClient(stream, payload), "127.0.0.1", port)
            return client
        except OSError:
            await asyncio.sleep(0.05)
    raise RuntimeError(f"no process listens on port {port}")
