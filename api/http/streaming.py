"""Writes a response that is sent while it is generated, on a connection that aiohttp reads.

Decides: how much is written in one turn of the event loop, and how long a client may take to read. Leaves to
others: the contents of the response.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from aiohttp import web

from api.http.routes import Call

WRITE_BYTES: Final = 64 << 10  # written in one turn of the loop: aiohttp and the kernel copy the bytes


async def write(call: Call, response: web.StreamResponse, data: bytes, held_bytes: int = 0) -> None:
    """Write data to a streamed response.

    Raises ``ConnectionError`` if the client has disconnected, which aiohttp reports only at the next write.
    ``held_bytes`` are counted as unread together with the data.
    """
    copied_bytes = min(len(data), WRITE_BYTES)
    with call.admission.answers.waiting(len(data) + copied_bytes + held_bytes, partial(abort, call)):
        async with asyncio.timeout(call.services.limits.write_timeout_s):
            for at in range(0, len(data), WRITE_BYTES):
                if at:
                    await asyncio.sleep(0)  # writes that the kernel accepts at once do not yield
                await response.write(memoryview(data)[at : at + WRITE_BYTES])
    if _transport(call) is None:
        raise ConnectionResetError("the client of the stream has disconnected")


def abort(call: Call) -> None:
    """Close the connection of a streamed response at once."""
    if (transport := _transport(call)) is not None:
        transport.abort()


def _transport(call: Call) -> asyncio.Transport | None:
    assert isinstance(call.request, web.BaseRequest)  # streamed responses have aiohttp's requests
    return call.request.transport
