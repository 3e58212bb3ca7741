"""Transports on loopback, unauthenticated clients, and a check for leaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from raftlog.node.network.handshake import NONCE_BYTES, Credentials, DiallerHandshake
from raftlog.node.network.tcp_links import TransportLimits
from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.types import NodeId
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.tcp_proxy import TcpProxy
from tests.helpers.waiting import limited, until

ONE, TWO = NodeId(1), NodeId(2)
SECRET = b"correct horse battery staple"
LIMITS = TransportLimits(redial_ms_min=5, redial_ms_max=20, handshake_ms_max=60_000)


class CountingRandom(Random):
    """Counts how often a transport drew a pause before a dial."""

    count = 0

    def random(self) -> float:
        """Count, and draw."""
        self.count += 1
        return super().random()


class Cluster:
    """Two transports on loopback, one of which may dial the other through a proxy."""

    def __init__(self) -> None:
        self.logged: list[dict[str, object]] = []
        self.proxy = TcpProxy()
        self.transports: list[TcpTransport] = []
        self.clock = ManualWallClock()
        self.pauses: dict[NodeId, CountingRandom] = {}

    async def node(
        self,
        node_id: NodeId,
        *,
        secret: bytes = SECRET,
        cluster_id: str = "cluster",
        limits: TransportLimits = LIMITS,
    ) -> tuple[TcpTransport, RecordingReceiver]:
        """A started transport, and what it reports."""
        self.pauses[node_id] = CountingRandom(node_id)
        transport = TcpTransport(
            node_id,
            cluster_id,
            secret,
            "127.0.0.1",
            0,
            rng=self.pauses[node_id],
            clock=self.clock,
            log=self._log,
            limits=limits,
        )
        self.transports.append(transport)
        receiver = RecordingReceiver()
        await transport.start(receiver)
        return transport, receiver

    async def through_proxy(self) -> tuple[TcpTransport, RecordingReceiver, TcpTransport, RecordingReceiver]:
        """Node 1 dials node 2 through the proxy; node 2 does not dial."""
        one, from_one = await self.node(ONE)
        two, from_two = await self.node(TWO)
        await self.proxy.start(two.port)
        one.set_peer(TWO, "127.0.0.1", self.proxy.port)
        await from_one.until(lambda: from_one.count("connected", TWO) == 1)
        return one, from_one, two, from_two

    def _log(self, event: str, **fields: object) -> None:
        self.logged.append({"event": event, **fields})


@asynccontextmanager
async def tcp_cluster() -> AsyncIterator[Cluster]:
    """In the end no task and no word of the secret may be left."""
    cluster = Cluster()
    try:
        yield cluster
    finally:
        for transport in cluster.transports:
            await transport.stop()
        await cluster.proxy.stop()
    left = [task for task in asyncio.all_tasks() if "dial_for_ever" in repr(task.get_coro())]
    assert not left, "stop() came back before its tasks had ended"
    # The test's own servers see the end a little later.
    await until(lambda: len(asyncio.all_tasks()) == 1, what="the end of the tasks of all servers")
    assert SECRET.decode() not in repr((cluster.logged, cluster.transports))


async def refused(transport: TcpTransport, reason: str) -> None:
    """Wait until a connection was refused for this reason."""
    await until(lambda: reason in transport.refusals, what=f"a refusal: {reason}")


async def proven_stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which this test is node 1, authenticated, and may send any bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    handshake = DiallerHandshake(Credentials(ONE, "cluster", SECRET), TWO, bytes(NONCE_BYTES))
    writer.write(handshake.greeting())
    while handshake.bytes_expected:
        writer.write(handshake.receive(await reader.readexactly(handshake.bytes_expected)))
    return reader, writer


async def until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """All bytes until the other side closes."""
    try:
        async with limited("the end of a connection"):
            rest = await reader.read()
    except ConnectionResetError:
        rest = b""
    writer.close()
    return rest
