"""Frames on a connection between nodes: how they are cut out of a byte stream, and checked.

Twelve bytes precede the payload, big-endian::

    u32 length            of the payload
    u32 payload checksum  CRC-32C of the payload
    u32 header checksum   CRC-32C of the eight bytes before

The header has a checksum of its own, so that a damaged length is detected at once: it does not make
this node reserve memory or wait for bytes that never come. Leaves to others: the meaning of a payload, and
the handling of a connection that brought a damaged frame.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from crc32c import crc32c

from raftlog.storage.filesystem import Buffer

_HEADER = struct.Struct(">III")
_CHECKED_PART = struct.Struct(">II")
_CHECKSUM = struct.Struct(">I")

HEADER_BYTES = _HEADER.size
"""The number of bytes that a frame has in addition to its payload."""

SCRATCH_BYTES = 256 * 1024
"""Bytes of the buffer for one read of many small frames, and so the size of one read call."""


class FrameDamaged(Exception):
    """A frame is damaged, so the rest of the stream cannot be trusted: close the connection.

    ``reason`` is a short name.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason.replace("_", " "))
        self.reason = reason


def frame_header(buffers: Sequence[Buffer], length: int) -> bytes:
    """The header of the frame whose payload is ``buffers``, with a total of ``length`` bytes."""
    checksum = 0
    for buffer in buffers:
        checksum = crc32c(buffer, checksum)
    checked = _CHECKED_PART.pack(length, checksum)
    return checked + _CHECKSUM.pack(crc32c(checked))


class FrameParser:
    """Cuts frames out of bytes that arrive in pieces of any size, and passes each frame to ``deliver``.

    The caller reads into memory from ``get_buffer`` and reports the number of bytes to ``buffer_updated``.
    Many small frames are read at once, and each is copied; a large frame is read directly into memory of its
    own size. In both cases the delivered view is read-only, never reused by the parser, and holds one whole
    frame whose checksum is right.
    """

    __slots__ = ("_deliver", "_end", "_frame_bytes_max", "_large", "_needed", "_scratch", "_stopped")

    def __init__(
        self,
        deliver: Callable[[memoryview], None],
        frame_bytes_max: int,
        *,
        scratch_bytes: int = SCRATCH_BYTES,
    ) -> None:
        self._deliver = deliver
        self._frame_bytes_max = frame_bytes_max
        self._scratch = memoryview(bytearray(max(scratch_bytes, 8 * HEADER_BYTES)))
        self._end = 0  # the scratch holds bytes up to here, beginning with a frame's header
        self._needed = HEADER_BYTES  # with fewer bytes in the scratch there is nothing to deliver
        self._large: _LargeFrame | None = None
        self._stopped = False

    def stop(self) -> None:
        """Deliver no more frames, not even frames that were read; ``deliver`` may call this method."""
        self._stopped = True

    def get_buffer(self) -> memoryview:
        """The memory for the next bytes of the stream; never empty."""
        if self._large is not None:
            return self._large.missing()
        return self._scratch[self._end :]

    def buffer_updated(self, count: int) -> None:
        """Handle ``count`` bytes in the last buffer: deliver the frames that are now complete.

        Raises ``FrameDamaged``; frames before the damage have been delivered, later frames are not.
        """
        if self._stopped:
            return
        if self._large is not None:
            self._fill_large(self._large, count)
            return
        self._end += count
        if self._end >= self._needed:
            self._deliver_whole_frames()

    def _fill_large(self, large: _LargeFrame, count: int) -> None:
        large.filled += count
        if large.filled < len(large.payload):
            return
        self._large = None
        if crc32c(large.payload) != large.checksum:
            raise FrameDamaged("payload_checksum_wrong")
        self._deliver(large.payload.toreadonly())

    def _deliver_whole_frames(self) -> None:
        scratch, end = self._scratch, self._end
        unpack_header, deliver, frame_bytes_max = _HEADER.unpack_from, self._deliver, self._frame_bytes_max
        start = 0
        self._needed = HEADER_BYTES
        while end - start >= HEADER_BYTES:
            length, checksum, header_checksum = unpack_header(scratch, start)
            if crc32c(scratch[start : start + 8]) != header_checksum:
                raise FrameDamaged("header_checksum_wrong")
            if length > frame_bytes_max:
                raise FrameDamaged("frame_too_large")
            payload_start = start + HEADER_BYTES
            next_start = payload_start + length
            if next_start > end:
                if next_start - start > len(scratch) // 4:
                    self._large = _LargeFrame(length, checksum, scratch[payload_start:end])
                    self._end = 0
                    return
                self._needed = next_start - start
                break
            payload = memoryview(bytes(scratch[payload_start:next_start]))
            if crc32c(payload) != checksum:
                raise FrameDamaged("payload_checksum_wrong")
            start = next_start
            deliver(payload)
            if self._stopped:
                return
        self._end = end - start
        if start:
            scratch[: self._end] = scratch[start:end]


class _LargeFrame:
    """A frame that is read directly into its own memory; the memory begins with the bytes that were already
    read.
    """

    __slots__ = ("checksum", "filled", "payload")

    def __init__(self, length: int, checksum: int, beginning: memoryview) -> None:
        self.payload = memoryview(bytearray(length))
        self.checksum = checksum
        self.filled = len(beginning)
        self.payload[: self.filled] = beginning

    def missing(self) -> memoryview:
        return self.payload[self.filled :]
