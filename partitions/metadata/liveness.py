"""Decides which brokers count as alive; pure, for the active controller.

Leaves to others: measuring the silence of brokers (``silence``).

A broker is fenced when it was silent for ``broker_timeout_ms``, and unfenced as soon as it is heard again. An
admitted broker that has not registered yet is never alive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from partitions.metadata.commands import FenceBroker, UnfenceBroker
from partitions.metadata.image import MetadataImage
from raftlog.types import NodeId


def decide(
    image: MetadataImage,
    silent_ms: Mapping[NodeId, float],
    heard: Collection[NodeId],
    *,
    broker_timeout_ms: float,
) -> list[FenceBroker | UnfenceBroker]:
    """The commands that fence silent brokers, and unfence brokers that were heard at the last check."""
    commands: list[FenceBroker | UnfenceBroker] = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        if broker.alive and silent_ms.get(broker_id, 0.0) >= broker_timeout_ms:
            commands.append(FenceBroker(broker_id, broker.incarnation))
        elif not broker.alive and broker.incarnation and broker_id in heard:
            commands.append(UnfenceBroker(broker_id, broker.incarnation))
    return commands
