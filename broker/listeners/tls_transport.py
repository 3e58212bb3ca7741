"""The transport of a connection with TLS, which counts unsent bytes as a transport without TLS does.

The TLS transports of asyncio and uvloop encrypt all bytes at once and pass them to the socket's transport.
The socket's transport keeps the bytes that the kernel does not take, without limit and without pausing the
protocol. A TLS transport keeps only bytes that are written while the socket's transport keeps more than
``BELOW_BYTES``; these bytes pause the protocol. So the end of each long write is written separately: an
unread response pauses the protocol, and counts (``answers_in_flight``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

BELOW_BYTES: Final = 64 << 10  # high-water mark of the socket's transport, in asyncio and in uvloop
END_BYTES: Final = 1 << 10

Data = bytes | bytearray | memoryview


class TlsTransport:
    """A transport with TLS; see the module. All other attributes are those of ``transport``."""

    __slots__ = ("_is_limited", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_limited = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as of the transport
        return getattr(self._transport, name)

    def write(self, data: Data) -> None:
        """Write bytes; the end of a long write separately."""
        self._limit()
        if len(data) <= BELOW_BYTES:
            self._transport.write(data)
            return
        view = memoryview(data)
        self._transport.write(view[:-END_BYTES])
        self._transport.write(view[-END_BYTES:])

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """Write all bytes as ``write`` does."""
        self._limit()
        parts = list(list_of_data)
        if sum(map(len, parts)) <= BELOW_BYTES:
            self._transport.writelines(parts)
            return
        for part in parts:
            self.write(part)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the protocol is paused whenever a byte stays above."""

    def _limit(self) -> None:
        """Set the limits at the first write: the bytes of a handshake would pause the protocol, too."""
        if not self._is_limited:
            self._is_limited = True
            # With a limit of 0, no byte would pause the protocol.
            self._transport.set_write_buffer_limits(1, 0)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes that pause the protocol; 0 if the transport is closed."""
        return 0 if self._transport.is_closing() else self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection after all bytes; asyncio allows one call only."""
        if not self._transport.is_closing():
            self._transport.close()
