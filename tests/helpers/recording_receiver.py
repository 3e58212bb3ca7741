"""Records everything that a transport reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raftlog.types import NodeId
from tests.helpers.waiting import limited


class RecordingReceiver:
    """A ``FrameReceiver`` whose ``events`` a test can wait for."""

    def __init__(self) -> None:
        self.events: list[tuple[str, NodeId]] = []
        self.frames: list[tuple[NodeId, bytes]] = []
        self.views: list[memoryview] = []
        self._changed = asyncio.Event()

    def frame_received(self, sender: NodeId, frame: memoryview) -> None:
        """Keep the view and a copy of its content at its arrival."""
        self.frames.append((sender, bytes(frame)))
        self.views.append(frame)
        self._changed.set()

    def peer_connected(self, peer: NodeId) -> None:
        self.events.append(("connected", peer))
        self._changed.set()

    def peer_lost(self, peer: NodeId) -> None:
        self.events.append(("lost", peer))
        self._changed.set()

    def peer_refused(self, peer: NodeId) -> None:
        self.events.append(("refused", peer))
        self._changed.set()

    def count(self, event: str, peer: int) -> int:
        """How often ``connected``, ``lost`` or ``refused`` was reported for a peer."""
        return self.events.count((event, NodeId(peer)))

    def payloads(self) -> list[bytes]:
        """The payloads of the frames."""
        return [frame for _, frame in self.frames]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for reports until the condition holds."""
        async with limited("reports of a transport"):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
