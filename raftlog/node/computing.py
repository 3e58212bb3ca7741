"""Work that takes the processor for long, away from the event loop.

One thread, so that requests that need much share one processor and leave the other to the loop. Python code
on it gives way every few milliseconds; a single compiled call must not take longer than the loop may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from raftlog.exhaustion import refuse_exhausted

Result = TypeVar("Result")

DECODED_AT_ONCE_BYTES: Final = 64 << 10  # of a state: about a millisecond
_thread: Final = ThreadPoolExecutor(1, "compute")  # starts when it is needed


async def decoded(work: Callable[[], Result], size_bytes: int) -> Result:
    """``computed`` for ``work`` that decodes a state of so many bytes."""
    return await computed(work, is_short=size_bytes <= DECODED_AT_ONCE_BYTES)


async def computed(work: Callable[[], Result], *, is_short: bool) -> Result:
    """Run ``work``, which changes nothing: at once where it ``is_short``, else on the thread.

    Raises ``Overloaded`` where memory or threads are lacking.
    """
    try:
        if is_short:
            return work()
        return await asyncio.get_running_loop().run_in_executor(_thread, work)
    except (MemoryError, RuntimeError) as error:
        refuse_exhausted(error, "what the request asks for cannot be prepared")
        raise
