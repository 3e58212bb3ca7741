"""Runs NATS JetStream in row 9: three servers, a stream of three replicas, ``sync_interval: always``.

The client is ``nats-py`` with all three servers and short intervals, so that after 0.4 to 0.6 s it leaves a
server that does not respond. A publish waits 0.3 s for its acknowledgement. There are no proxies between the
servers, so servers are killed and stopped, but not isolated.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from bench.nats import BINARY, Nats
from bench.outages import KILL, RECOVERED_S, STOP, TRANSFER, Send

if TYPE_CHECKING:
    from nats.aio.client import Client as NatsClient

_STREAM: Final = "s0"
_PUBLISH_S: Final = 0.3
_LOOK_S: Final = 0.05


def missing() -> str | None:
    """Why NATS cannot be measured here, and the remedy; None if it can."""
    if find_spec("nats") is None or not BINARY.exists():
        return 'NATS is not installed; pip install "raftlog[bench]"'
    return None


class NatsOutages:
    """Three NATS servers with one stream."""

    kinds = (KILL, STOP, TRANSFER)

    def __init__(self, nats: Nats) -> None:
        self._nats = nats

    @classmethod
    @contextlib.contextmanager
    def started(cls) -> Iterator[NatsOutages]:
        """Run the servers for the duration of the ``with`` block."""
        with tempfile.TemporaryDirectory(prefix="nats-outages-") as name:
            nats = Nats(Path(name), sync_always=True)
            try:
                asyncio.run(nats.start(1))
                yield cls(nats)
            finally:
                asyncio.run(nats.stop())

    def wait_healthy(self) -> None:
        """Wait until both followers of the stream are current; see ``Replicated``."""
        asyncio.run(self._until_healthy())

    @contextlib.contextmanager
    def client(self) -> Iterator[Send]:
        """Yield a function that publishes one message; see ``Replicated``."""
        with asyncio.Runner() as runner:
            client = runner.run(self._connected())
            stream = client.jetstream()
            yield lambda _: runner.run(stream.publish(_STREAM, b"x" * 10, timeout=_PUBLISH_S))
            runner.run(client.close())

    @contextlib.contextmanager
    def failing(self, kind: str, trial: int) -> Iterator[None]:
        """Kill, stop or replace the stream's leader; restore it after the block; see ``Replicated``."""
        leader = asyncio.run(self._leader())
        if kind == TRANSFER:
            asyncio.run(self._nats.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{_STREAM}", {}))
            yield
            return
        self._nats.signal(leader, signal.SIGKILL if kind == KILL else signal.SIGSTOP)
        try:
            yield
        finally:
            if kind == KILL:
                self._nats.start_again(leader)
            else:
                self._nats.signal(leader, signal.SIGCONT)

    async def _connected(self) -> NatsClient:
        from nats.aio.client import Client as NatsClient  # part of the extra "bench" only

        client = NatsClient()

        async def ignore(_: Exception) -> None:
            """Ignore lost connections, which the gaps measure."""

        await client.connect(
            [f"nats://127.0.0.1:{port}" for port in self._nats.ports],
            error_cb=ignore,
            connect_timeout=1,
            ping_interval=cast("int", 0.2),  # only the argument of a sleep
            max_outstanding_pings=2,
            reconnect_time_wait=cast("int", 0.02),
            max_reconnect_attempts=-1,
        )
        return client

    async def _leader(self) -> int:
        found = await self._cluster()
        return int(str(found["leader"])[1:])

    async def _cluster(self) -> dict[str, object]:
        answer = await self._nats.request(f"$JS.API.STREAM.INFO.{_STREAM}", {})
        cluster = answer.get("cluster")
        return cluster if isinstance(cluster, dict) else {}

    async def _until_healthy(self) -> None:
        deadline = time.monotonic() + RECOVERED_S
        while True:
            with contextlib.suppress(OSError, TimeoutError, RuntimeError):
                cluster = await self._cluster()
                replicas = cluster.get("replicas")
                if (
                    cluster.get("leader")
                    and isinstance(replicas, list)
                    and len(replicas) == 2
                    and all(one.get("current") and not one.get("offline") for one in replicas)
                ):
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"NATS is not healthy after {RECOVERED_S:g} s")
            await asyncio.sleep(_LOOK_S)
