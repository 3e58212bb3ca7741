"""Waits for a condition in tests with an event loop; the limit is that of ``raftlog.testing.waits``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from raftlog.testing.waits import LIMIT_S, expired

POLL_S: Final = 0.002

Found = TypeVar("Found")


async def until(holds: Callable[[], Found], *, what: str) -> Found:
    """The result of ``holds`` once it is true. Raises ``AssertionError`` after ``LIMIT_S``."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + LIMIT_S
    while not (found := holds()):
        if loop.time() > ends_s:
            raise AssertionError(expired(what, found))
        await asyncio.sleep(POLL_S)
    return found


@asynccontextmanager
async def limited(what: str) -> AsyncIterator[None]:
    """Raises ``AssertionError`` when the block takes longer than ``LIMIT_S``."""
    expiry: list[str] = []
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)

    def expire() -> None:
        expiry.append(expired(what, None))  # while the block still waits
        limit.reschedule(loop.time())

    timer = loop.call_later(LIMIT_S, expire)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise AssertionError(expiry[0]) from error
    finally:
        timer.cancel()
