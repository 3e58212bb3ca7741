"""Moves connections to other protocols, and delivers bytes to buffered and unbuffered protocols of
asyncio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast


def hand_over(transport: asyncio.Transport, protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Give a connection another protocol, and deliver ``data`` to it: bytes that the old protocol
    received.
    """
    transport.set_write_buffer_limits()
    transport.pause_reading()  # uvloop chooses the kind of protocol when reading begins
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    deliver(transport.get_protocol, data)


def deliver(current: Callable[[], asyncio.BaseProtocol], data: bytes) -> None:
    """Deliver received bytes to a transport's protocol.

    ``current`` returns the protocol: it may be replaced after each part of the bytes.
    """
    rest = memoryview(data)
    while rest:
        protocol = current()
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast("asyncio.Protocol", protocol).data_received(bytes(rest))
            return
        count = _filled(memoryview(protocol.get_buffer(-1)), rest)
        protocol.buffer_updated(count)
        rest = rest[count:]


def _filled(room: memoryview, data: memoryview) -> int:
    """Copy bytes from ``data`` to ``room``; return their number.

    The view ``room`` is released when the call returns, so that the owner of its buffer can enlarge the
    buffer.
    """
    count = min(len(room), len(data))
    room[:count] = data[:count]
    return count
