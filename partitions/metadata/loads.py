"""Collects the load of each partition from the broker that leads it.

Decides: that the loads of a broker that does not answer are left out. Leaves to others: measuring the load
(``partitions.reassignment.load_meter``) and the moves that follow (``balancing``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from partitions.metadata.balancing import Loads, PartitionLoad
from raftlog.errors import RaftlogError
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import decode_body, encode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.types import GroupId, NodeId

LOADS: Final = Service("partition.loads", CallClass.REPLICAS)
ASK_TIMEOUT_MS: Final = 2000


LoadsHere = Callable[[], Loads]


async def collect_loads(host: GroupHost, brokers: Collection[NodeId], here: LoadsHere) -> Loads:
    """Ask ``brokers`` for the loads of the partitions they lead; skip brokers that do not answer."""

    async def ask(node: NodeId) -> Loads:
        if node == host.node_id:
            return here()
        try:
            answer, _ = await host.calls.call(node, LOADS, encode_body(None), timeout_ms=ASK_TIMEOUT_MS)
            return decode_body(answer, dict[GroupId, PartitionLoad])
        except RaftlogError:
            return {}

    found: dict[GroupId, PartitionLoad] = {}
    for loads in await asyncio.gather(*map(ask, sorted(brokers))):
        found.update(loads)
    return found
