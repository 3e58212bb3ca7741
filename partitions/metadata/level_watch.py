"""Asks all brokers for their feature levels while the cluster has a lower level than this broker.

Decides: when to ask, and that the cluster's level stays while a broker is missing or does not answer. Leaves
to others: the meaning of a level (``features``), and writing the new level (``active``).
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
"""Call that returns the highest feature level of a broker. A broker without this call has the first level."""

ASK_AGAIN_S: Final = 2.0
ASK_TIMEOUT_MS: Final = 2000


class LevelWatch:
    """Asks brokers for their feature levels, to find out when all of them support a higher level."""

    def __init__(self, host: GroupHost, level: int) -> None:
        self._host = host
        self._level = level
        self._asked_at = float("-inf")

    async def due(self, image: MetadataImage, heard: frozenset[NodeId]) -> SetFeatureLevel | None:
        """The command that raises the feature level if all brokers in use support a higher level, or None."""
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
            return FIRST  # the broker has a release without levels, or does not answer
