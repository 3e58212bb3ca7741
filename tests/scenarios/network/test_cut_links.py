"""Links of the testing kit that are cut in silence."""

from __future__ import annotations

import asyncio
from random import Random

from chaos.kit.network import CuttableTransport
from raftlog.node.network.tcp_links import TransportLimits
from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.virtual_time import VirtualClock

ONE, TWO = NodeId(1), NodeId(2)
LIMITS = TransportLimits(redial_ms_min=5, redial_ms_max=20)


class End:
    """One of two brokers."""

    def __init__(self, node_id: NodeId) -> None:
        self.tcp = TcpTransport(
            node_id,
            "cluster",
            b"a secret of the cluster",
            "127.0.0.1",
            0,
            rng=Random(1),
            clock=VirtualClock(),
            limits=LIMITS,
        )
        self.links = CuttableTransport(self.tcp)
        self.receiver = RecordingReceiver()

    async def start(self) -> None:
        await self.links.start(self.receiver)


async def connected_pair() -> tuple[End, End]:
    one, two = End(ONE), End(TWO)
    await one.start()
    await two.start()
    one.links.set_peer(TWO, "127.0.0.1", two.tcp.port)
    two.links.set_peer(ONE, "127.0.0.1", one.tcp.port)
    await one.receiver.until(lambda: one.receiver.count("connected", TWO) == 1)
    await two.receiver.until(lambda: two.receiver.count("connected", ONE) == 1)
    return one, two


@in_virtual_time
async def test_nothing_passes_a_cut_link_and_nobody_is_told() -> None:
    one, two = await connected_pair()
    two.links.cut(frozenset({ONE}))
    assert one.links.send(TWO, (b"lost on arrival",))
    assert two.links.send(ONE, (b"lost at once",))
    one.links.disconnect(TWO)  # as after a long silence
    await one.receiver.until(lambda: one.receiver.count("connected", TWO) >= 2)
    assert one.links.send(TWO, (b"lost, too",))
    two.links.cut(frozenset())
    await two.receiver.until(lambda: two.receiver.count("connected", ONE) == 2)
    while not two.receiver.frames:  # a connection from before may be the one that breaks
        one.links.send(TWO, (b"arrives",))
        await asyncio.sleep(0.01)
    assert {*two.receiver.frames, *one.receiver.frames} == {(ONE, b"arrives")}
    await one.links.stop()
    await two.links.stop()


@in_virtual_time
async def test_a_peer_behind_a_cut_link_is_silent() -> None:
    one, two = await connected_pair()
    one.links.cut(frozenset({TWO}))
    at_first = one.links.seconds_since_heard(TWO)
    two.tcp.send(ONE, (b"lost",))
    two.links.disconnect(ONE)
    await two.receiver.until(lambda: two.receiver.count("connected", ONE) == 2)
    assert one.links.seconds_since_heard(TWO) > at_first
    await one.links.stop()
    await two.links.stop()
