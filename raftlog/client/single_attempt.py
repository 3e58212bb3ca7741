"""One attempt for each request that writes.

aiohttp sends PUT and DELETE a second time, on a new connection, when a kept connection ends before the
response. The broker may have carried out the first attempt, and the error of the second one does not say so.
"""

from __future__ import annotations

import aiohttp


async def single_attempt(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A middleware of ``aiohttp.ClientSession``. Reads may be repeated."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        if request.method == "GET":
            raise
        raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error
