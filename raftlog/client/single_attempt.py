"""Prevents aiohttp from repeating a request that writes, and notes whether a failed request was sent.

aiohttp sends PUT and DELETE a second time, on a new connection, when a kept connection ends before the
response. The broker may have carried out the first attempt, and the error of the second attempt does not say
so.

An error that is raised before the request has a connection gets a note, whatever the error's type: the time
of a request may end while a name is resolved, and a resolver may raise ``UnicodeError``.
"""

from __future__ import annotations

from typing import Final

import aiohttp

_NEVER_SENT: Final = "nothing of the request was sent"


async def single_attempt(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """A middleware of ``aiohttp.ClientSession``: aiohttp repeats only reads and requests never sent."""
    try:
        return await handler(request)
    except BaseException as error:
        if request.response is None:  # the object is created when the request is written
            error.add_note(_NEVER_SENT)
            raise
        if request.method == "GET" or not isinstance(
            error, aiohttp.ClientOSError | aiohttp.ServerDisconnectedError
        ):
            raise
        raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error


def was_never_sent(error: BaseException) -> bool:
    """Whether a request of a session with ``single_attempt`` failed before it was sent.

    A timeout cancels the request: the cause of ``TimeoutError`` is the cancellation.
    """
    both = error, error.__cause__
    return any(_NEVER_SENT in getattr(each, "__notes__", ()) for each in both)
