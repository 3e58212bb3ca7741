"""A connection without a socket, whose other end is the test."""

from __future__ import annotations

import asyncio
from typing import cast

from api.connections.fast_path import SCRATCH_BYTES
from broker.listeners.handing_over import deliver


class Wire(asyncio.Transport):
    """Connect a test to a protocol of the server; keep the bytes that come back in ``answers``."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.answers = b""
        self._protocol = cast("asyncio.Protocol", protocol)
        self._waiting: list[bytes] = []
        self.is_paused = self._is_closing = False
        self.high: int | None = None  # bytes that are sent before the protocol is paused
        protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        """Hand over, now or when the server reads again."""
        self._waiting += [data[at : at + SCRATCH_BYTES] for at in range(0, len(data), SCRATCH_BYTES)]
        self._deliver()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.answers += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Keep what is sent from now on."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """Hand over what was kept."""
        self.is_paused = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self.is_paused

    def _deliver(self) -> None:
        while self._waiting and not self.is_paused and not self._is_closing:
            deliver(self.get_protocol, self._waiting.pop(0))
