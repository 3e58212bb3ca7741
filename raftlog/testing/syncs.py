"""Runs rounds of syncs as coroutines, for tests in which no real time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from raftlog.node.flusher import Errors, RoundEnded, RunSyncs
from raftlog.storage.log_storage import DiskWork


def in_a_task(run: Callable[[Sequence[DiskWork]], Coroutine[Any, Any, Errors]]) -> RunSyncs:
    """Run each round of syncs in a task. ``run`` performs the syncs and returns their errors."""

    def begin(works: Sequence[DiskWork], ended: RoundEnded) -> None:
        def done(task: asyncio.Task[Errors]) -> None:
            if not task.cancelled():
                ended(task.exception() or task.result())

        asyncio.get_running_loop().create_task(run(works)).add_done_callback(done)

    return begin
