"""Deadlines of requests: times of the running event loop, in seconds."""

from __future__ import annotations

import asyncio


def deadline_in(timeout_ms: float) -> float:
    """The deadline ``timeout_ms`` from now, never in the past; a time of the running event loop
    in seconds.
    """
    return asyncio.get_running_loop().time() + max(timeout_ms, 0) / 1000


def ms_until(deadline: float, *, at_least: int = 1) -> int:
    """The whole milliseconds until a deadline, but at least ``at_least``."""
    return max(at_least, round((deadline - asyncio.get_running_loop().time()) * 1000))
