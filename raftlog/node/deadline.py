"""Deadlines of requests: times of the running event loop, in seconds."""

from __future__ import annotations

import asyncio


def deadline_in(timeout_ms: float) -> float:
    """Return the deadline that is ``timeout_ms`` milliseconds away, none of them before now."""
    return asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000


def ms_until(deadline: float, *, at_least: int = 1) -> int:
    """Return the whole milliseconds until a deadline; ``at_least`` where fewer are left."""
    return max(at_least, round((deadline - asyncio.get_running_loop().time()) * 1000))
