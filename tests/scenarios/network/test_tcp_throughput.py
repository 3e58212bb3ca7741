"""How fast frames travel on loopback with both ends on one thread; ``-rP`` shows the numbers.

Only that everything arrives is asserted: how long it takes says more about the machine.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from random import Random

import pytest
import uvloop

from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.types import NodeId
from tests.helpers.recording_receiver import RecordingReceiver

ONE, TWO = NodeId(1), NodeId(2)
Run = Callable[[Coroutine[None, None, None]], None]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(("frame_bytes", "count"), [(50, 10_000), (1_000_000, 50)])
def test_all_frames_arrive(run: Run, frame_bytes: int, count: int) -> None:
    async def story() -> None:
        one, two = (TcpTransport(node, "c", bytes(16), "127.0.0.1", 0, rng=Random(1)) for node in (ONE, TWO))
        from_one, from_two = RecordingReceiver(), RecordingReceiver()
        await one.start(from_one)
        await two.start(from_two)
        one.set_peer(TWO, "127.0.0.1", two.port)
        await from_one.until(lambda: from_one.count("connected", TWO) == 1)
        payload, began = bytes(frame_bytes), time.perf_counter()
        for _ in range(count):
            while not one.send(TWO, (payload,)):
                await asyncio.sleep(0)
        await from_two.until(lambda: len(from_two.frames) == count)
        seconds = time.perf_counter() - began
        sys.stdout.write(f"{count} frames of {frame_bytes} bytes: {seconds / count * 1e6:.1f} us each, ")
        sys.stdout.write(f"{count * frame_bytes / seconds / 1e6:.0f} MB/s\n")
        await one.stop()
        await two.stop()

    run(story())
