"""Asks all brokers which feature level they have, while the cluster has a lower one than this broker.

Decides: when to ask, and that one broker that is missing, or does not answer, keeps the level as it is.
Leaves to others: what a level means (``features``), and writing it (``active``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from partitions.metadata.commands import SetFeatureLevel
from partitions.metadata.features import FIRST
from partitions.metadata.image import MetadataImage
from raftlog.errors import RaftlogError
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import NodeId

FEATURES: Final = Service("cluster.features", CallClass.METADATA)
"""Answers with the level of a broker. One that does not offer it has the first."""

ASK_AGAIN_S: Final = 2.0
ASK_TIMEOUT_MS: Final = 2000


class LevelWatch:
    """The levels of the brokers, as the active controller asks for them."""

    def __init__(self, host: GroupHost, level: int) -> None:
        self._host = host
        self._level = level
        self._asked_at = float("-inf")

    async def due(self, image: MetadataImage, heard: frozenset[NodeId]) -> SetFeatureLevel | None:
        """The command that raises the level, if all brokers in use have it now."""
        brokers = [node for node in image.brokers if image.is_in_use(node)]
        now = self._host.clock.monotonic()
        is_due = image.feature_level < self._level and now - self._asked_at >= ASK_AGAIN_S
        if not is_due or not brokers or not heard.issuperset(brokers):
            return None
        self._asked_at = now
        level = min(await asyncio.gather(*map(self._ask, brokers)))
        return SetFeatureLevel(level) if level > image.feature_level else None

    async def _ask(self, node: NodeId) -> int:
        if node == self._host.node_id:
            return self._level
        try:
            answer, _ = await self._host.calls.call(
                node, FEATURES, encode_body(None), timeout_ms=ASK_TIMEOUT_MS
            )
            return decode_body(answer, int)
        except RaftlogError:
            return FIRST  # it is of a release without levels, or does not answer
