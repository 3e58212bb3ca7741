"""A client in virtual time. Its consumers, which have a thread in production, run on the loop of the test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from raftlog.aio import Client
from raftlog.client.environment import Environment
from raftlog.client.portal import Portal
from raftlog.clock import Clock
from raftlog.errors import NotSent
from tests.helpers.virtual_time import VirtualClock
from tests.helpers.whole_broker import TOPIC, WholeBroker, whole_broker

Result = TypeVar("Result")


class LoopPortal(Portal):
    """A portal to the running loop. Like the real one, it leaves a cancelled call to end by itself."""

    def __init__(self) -> None:
        self._is_open = True
        self._calls: set[asyncio.Task[Any]] = set()

    async def awaited(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run ``work`` as a task of its own."""
        if not self._is_open:
            raise NotSent("the client is closed")

        async def run() -> Result:
            return await work()

        call = asyncio.create_task(run())
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            call.cancel()
            raise

    def post(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` in the next turn of the loop."""
        asyncio.get_running_loop().call_soon(callback)

    def close(self) -> None:
        """Cancel waiting calls."""
        self._is_open = False
        for call in self._calls:
            call.cancel()


class VirtualClient(Client):
    """A client whose time is that of the loop of the test."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        clock: Clock | None = None,
        **options: Any,  # noqa: ANN401  # those of ``Client``
    ) -> None:
        environment = Environment(clock=clock or VirtualClock(), rng=random.Random(7), portal=LoopPortal)
        super().__init__(url, environment=environment, **options)


@asynccontextmanager
async def filled(*counts: int) -> AsyncIterator[tuple[WholeBroker, Client]]:
    """A broker with so many numbered records in each partition of ``orders``."""
    async with whole_broker(partitions=len(counts)) as broker, VirtualClient(broker.url) as client:
        async with client.producer(TOPIC) as producer:
            for partition, count in enumerate(counts):
                for number in range(count):
                    await producer.send(str(number), partition=partition)
        yield broker, client
