"""How a link dials, on a network that answers nothing."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

from raftlog.node.network.handshake import Credentials
from raftlog.node.network.rejected_connections import Refusals
from raftlog.node.network.tcp_links import LinkContext, OutboundLink, TransportLimits
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.recording_receiver import RecordingReceiver
from tests.helpers.tcp_cluster import ONE, SECRET, TWO
from tests.helpers.virtual_time import VirtualClock

LIMITS = TransportLimits(dial_ms_max=150, redial_ms_min=10, redial_ms_max=100)


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
    clock = VirtualClock()
    context = LinkContext(
        Credentials(ONE, "cluster", SECRET),
        LIMITS,
        clock,
        random.Random(1),
        Refusals(lambda *arguments: None, clock, LIMITS.log_interval_ms),
        RecordingReceiver(),
    )
    link = OutboundLink(context, TWO, "127.0.0.1", 1)
    await asyncio.sleep(2)
    await link.stop()
    pauses = [later - earlier for earlier, later in pairwise(dialled)]
    assert len(pauses) >= 5
    assert max(pauses) <= (LIMITS.dial_ms_max + 1.5 * LIMITS.redial_ms_max) / 1000
