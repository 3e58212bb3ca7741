"""How a link dials, on a network that answers nothing."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from itertools import pairwise

from raftlog.node.network.handshake import Credentials
from raftlog.node.network.rejected_connections import Refusals
from raftlog.node.network.tcp_links import LinkContext, OutboundLink, TransportLimits
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.tcp_cluster import ONE, SECRET, TWO
from tests.helpers.virtual_time import VirtualClock

LIMITS = TransportLimits(dial_ms_max=150, redial_ms_min=10, redial_ms_max=100)


def new_link() -> OutboundLink:
    """It begins to dial."""
    clock = VirtualClock()
    context = LinkContext(
        Credentials(ONE, "cluster", SECRET),
        LIMITS,
        clock,
        random.Random(1),
        Refusals(lambda *arguments, **details: None, clock, LIMITS.log_interval_ms),
        RecordingReceiver(),
        frozenset(),
    )
    return OutboundLink(context, TWO, "127.0.0.1", 1)


# requirement: ST4
@in_virtual_time
async def test_a_dial_whose_packets_are_lost_is_given_up_and_begun_again() -> None:
    """The kernel repeats the first packet of a connection after one second, three and seven."""
    loop = asyncio.get_running_loop()
    dialled: list[float] = []

    async def lost(*arguments: object) -> None:
        dialled.append(loop.time())
        await asyncio.Event().wait()

    loop.create_connection = lost  # type: ignore[method-assign, assignment]
    link = new_link()
    await asyncio.sleep(2)
    await link.stop()
    pauses = [later - earlier for earlier, later in pairwise(dialled)]
    assert len(pauses) >= 5
    assert max(pauses) <= (LIMITS.dial_ms_max + 1.5 * LIMITS.redial_ms_max) / 1000


class SilentlyClosed(asyncio.Transport):
    """What uvloop makes of a connection when its making is cancelled: the protocol hears nothing."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """As uvloop does."""
        if self.is_closed:
            raise RuntimeError("the handler is closed")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits here."""

    def abort(self) -> None:
        """It may be closed already."""
        self.is_closed = True


# requirement: ST4
@in_virtual_time
async def test_frames_for_a_connection_that_was_made_too_late_are_dropped() -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, object]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))

    async def made_too_late(factory: Callable[[], asyncio.Protocol], *address: object) -> None:
        transport = SilentlyClosed()
        try:
            factory().connection_made(transport)
            await asyncio.Event().wait()
        finally:
            transport.is_closed = True
            transport.get_extra_info("socket").close()

    loop.create_connection = made_too_late  # type: ignore[method-assign, assignment]
    link = new_link()
    for _ in range(100):
        await asyncio.sleep(0.01)
        link.connection.send([b"frame"], 5, 1 << 20)
    await link.stop()
    assert errors == []
