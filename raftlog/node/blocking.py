"""Runs work that waits for the disk, or takes long, away from the event loop.

Decides only what happens to such work when the task that waits for it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class RunBlocking(Protocol):
    """Runs blocking or long work away from the event loop, as ``node.threads.in_thread`` does."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """Return the result of ``work``, or raise its error."""


@dataclass(frozen=True, slots=True)
class ToItsEnd:
    """Runs blocking work to its end, even if the waiting task is cancelled: threads cannot be
    stopped safely.
    """

    run: RunBlocking

    async def __call__(self, work: Callable[[], Result], /) -> Result:
        running = asyncio.ensure_future(self.run(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            while not running.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])
            raise
