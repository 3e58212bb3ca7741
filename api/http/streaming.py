"""Writes of a response that is sent while it is made, on a connection that aiohttp reads.

Decides: how much is written in one turn of the event loop, and how long a reader may take. Leaves to others:
what is written.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from aiohttp import web

from api.http.routes import Call

WRITE_BYTES: Final = 64 << 10  # in one turn of the loop: aiohttp and the kernel copy it


async def write(call: Call, response: web.StreamResponse, data: bytes, held_bytes: int = 0) -> None:
    """Raises ``ConnectionError`` when the reader has disconnected: aiohttp reports that only at the next
    write.

    ``held_bytes`` wait together with the data.
    """
    copied_bytes = min(len(data), WRITE_BYTES)
    with call.admission.answers.waiting(len(data) + copied_bytes + held_bytes, partial(abort, call)):
        async with asyncio.timeout(call.services.limits.write_timeout_s):
            for at in range(0, len(data), WRITE_BYTES):
                if at:
                    await asyncio.sleep(0)  # a write that the kernel takes does not wait
                await response.write(memoryview(data)[at : at + WRITE_BYTES])
    if _transport(call) is None:
        raise ConnectionResetError("the reader of the stream has disconnected")


def abort(call: Call) -> None:
    """Close the connection of a stream at once."""
    if (transport := _transport(call)) is not None:
        transport.abort()


def _transport(call: Call) -> asyncio.Transport | None:
    assert isinstance(call.request, web.BaseRequest)  # only aiohttp streams
    return call.request.transport
