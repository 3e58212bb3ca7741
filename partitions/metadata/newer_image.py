"""Fetches newer metadata from another broker, for a broker that is cut off from the active controller.

The leader sends its log to each broker. While that link is broken, a broker may reach the leader through a
third broker, and must show the effect of its requests. Metadata that another broker shows is committed, so
this broker may show it before its own log has it.

Decides: which brokers are asked, and that requests of this broker wait for one shared fetch. Leaves to
others: that the shown version never falls (``shown_image``), and when a fetch is needed (``service``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from partitions.metadata.image import MetadataImage
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.shown_image import ShownImage
from raftlog.errors import InvalidRequest, InvariantViolated, RaftlogError
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId

SERVICE: Final = Service("metadata.image", CallClass.METADATA)
ATTEMPT_MS: Final = 1000  # to ask one broker, which may be cut off, too

_log = logging.getLogger("raftlog.controller")


class _Ask(msgspec.Struct, frozen=True, array_like=True):
    """Asks a broker for metadata of this version or newer; the broker waits up to ``timeout_ms``."""

    version: int
    timeout_ms: int


class NewerImage:
    """Sends this broker's shown metadata to peers, and fetches the metadata that peers show.

    All on the event loop's thread.
    """

    def __init__(self, host: GroupHost, shown: ShownImage) -> None:
        self._host = host
        self._shown = shown
        self._turn = asyncio.Lock()
        host.calls.serve(SERVICE, self._serve)

    async def fetch(self, version: int, timeout_ms: float) -> None:
        """Fetch and show metadata of this version or newer, if a peer has such metadata in ``timeout_ms``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000), self._turn:
                for peer in sorted(self._host.reachable_peers):
                    if self._shown.image.version >= version:
                        return
                    try:
                        self._shown.changed(await self._image_of(peer, version))
                    except RaftlogError as error:
                        _log.info("broker %s has not sent newer metadata: %s", peer, error)

    async def _image_of(self, peer: NodeId, version: int) -> MetadataImage:
        head = encode_body(_Ask(version, ATTEMPT_MS))
        _, data = await self._host.calls.call(peer, SERVICE, head, timeout_ms=ATTEMPT_MS + 1)
        try:
            return decode_image(bytes(data))
        except InvariantViolated as error:  # that broker has another release
            raise InvalidRequest(str(error)) from None

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, _Ask)
        await self._shown.wait_for(ask.version, ask.timeout_ms)
        return b"", (encode_image(self._shown.image),)
