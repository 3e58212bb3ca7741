"""A fake cluster beside a blocking client: on a loop and a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.helpers.fake_broker import FakeCluster, fake_cluster


@contextmanager
def running_cluster(partitions: int = 1) -> Iterator[FakeCluster]:
    """A cluster on a loop and thread of its own."""
    started: list[FakeCluster] = []
    is_ready, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with fake_cluster(partitions) as cluster:
            started.append(cluster)
            is_ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    is_ready.wait()
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(started[0].release.set)
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
