"""Blocking work on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from raftlog.exhaustion import exhaustion

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run ``work`` on a thread, as ``asyncio.to_thread`` does; raise an exhaustion as an ``OSError``."""
    try:
        return await asyncio.to_thread(work)
    except (MemoryError, RuntimeError) as error:
        raise exhaustion(error) or error from error
