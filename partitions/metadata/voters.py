"""Decides which brokers vote in the metadata group; pure, for the active controller.

Leaves to others: measuring silence (``silence``), and the steps of a change
(``partitions.reassignment.metadata_members``). All other brokers are learners.

- The group has 5 voters if at least 5 brokers are in use, 3 if at least 3 are, else 1. A broker is in use if
  it has registered and is neither decommissioned nor dead.
- A healthy voter never loses its vote: a cluster that began with 4 voters keeps them until some leave.
- A decommissioned or removed voter leaves, and is replaced if another broker is free. A dead voter leaves
  only if another broker replaces it: without it the group would not tolerate more failures, and it may come
  back. If live voters would otherwise be no majority after a change, dead voters leave as well.
- Voters that are not in the metadata have not registered yet, and stay.

The result depends on the metadata and the silence only, so all controllers choose equal voters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from partitions.metadata.image import BrokerInfo, MetadataImage
from raftlog.types import NodeId

SIZES: Final = (5, 3)  # numbers of voters; 1 with fewer brokers


def wanted_voters(
    image: MetadataImage,
    voters: frozenset[NodeId],
    dead: Collection[NodeId],
    heard: Collection[NodeId],
    without_room: Collection[NodeId],
) -> frozenset[NodeId]:
    """The target voters of the metadata group, chosen from its current voters and the brokers in use.

    Never empty unless ``voters`` is empty.
    """
    in_use = [each for node, each in image.brokers.items() if image.is_in_use(node) and node not in dead]
    staying = [node for node in voters if not _is_out_of_use(image, node)]
    healthy = [node for node in staying if node not in dead]
    size = max(_size_for(len(in_use)), len(staying))
    able = [
        each
        for each in in_use
        if each.broker_id not in voters and each.broker_id in heard and _is_able(each, without_room)
    ]
    wanted = {*healthy}
    racks = Counter(_rack(image, node) for node in healthy)
    while able and len(wanted) < size:
        best = min(able, key=lambda each: (racks[each.rack or ""], each.broker_id))
        able.remove(best)
        racks[best.rack or ""] += 1
        wanted.add(best.broker_id)
    alive = len(wanted)
    for node in sorted(set(staying) - wanted):
        if len(wanted) < size and 2 * alive > len(wanted) + 1:
            wanted.add(node)
    return frozenset(wanted) or voters


def _size_for(brokers: int) -> int:
    return next((size for size in SIZES if brokers >= size), 1)


def _is_able(broker: BrokerInfo, without_room: Collection[NodeId]) -> bool:
    return broker.alive and not broker.draining and broker.broker_id not in without_room


def _is_out_of_use(image: MetadataImage, node: NodeId) -> bool:
    """Whether a broker is decommissioned or removed."""
    broker = image.brokers.get(node)
    return node in image.forgotten if broker is None else broker.decommissioned


def _rack(image: MetadataImage, node: NodeId) -> str:
    broker = image.brokers.get(node)
    return "" if broker is None or broker.rack is None else broker.rack
