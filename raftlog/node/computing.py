"""Runs work that uses the processor for long away from the event loop.

One thread does all such work, so that expensive requests share one processor and leave another to the loop.
Python code on this thread yields every few milliseconds; a single compiled call must not take longer than the
loop may wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from raftlog.exhaustion import refuse_exhausted

Result = TypeVar("Result")

DECODED_AT_ONCE_BYTES: Final = 64 << 10  # of a state: decoding takes about a millisecond
_thread: Final = ThreadPoolExecutor(1, "compute")  # starts with its first work


async def decoded(work: Callable[[], Result], size_bytes: int) -> Result:
    """Run ``work``, which decodes a state of ``size_bytes``: at once if the state is small, else on the
    thread.
    """
    return await computed(work, is_short=size_bytes <= DECODED_AT_ONCE_BYTES)


async def computed(work: Callable[[], Result], *, is_short: bool) -> Result:
    """Run ``work``, which changes no shared state: at once if it ``is_short``, else on the thread.

    Raises ``Overloaded`` if memory is short or no thread can be started.
    """
    try:
        if is_short:
            return work()
        return await asyncio.get_running_loop().run_in_executor(_thread, work)
    except (MemoryError, RuntimeError) as error:
        refuse_exhausted(error, "the broker cannot prepare the answer to this request")
        raise
