"""Hands connections to other protocols, and delivers bytes to protocols of both kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast


def hand_over(transport: asyncio.Transport, protocol: asyncio.BaseProtocol, data: bytes) -> None:
    """Continue a connection with another protocol, which first gets ``data``, received before."""
    transport.set_write_buffer_limits()
    transport.pause_reading()  # uvloop chooses the kind of protocol when reading begins
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    transport.resume_reading()
    deliver(transport.get_protocol, data)


def deliver(current: Callable[[], asyncio.BaseProtocol], data: bytes) -> None:
    """Give received bytes to the ``current`` protocol of a transport, which may change with each delivery."""
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
    """Copy bytes; return their number. The view is released afterwards, so that its owner can enlarge it."""
    count = min(len(room), len(data))
    room[:count] = data[:count]
    return count
