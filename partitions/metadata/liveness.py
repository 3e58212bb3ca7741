"""Which brokers count as alive: a pure decision of the active controller.

Decides: which brokers to fence and which to take back. Leaves to others: hearing from brokers and
measuring their silence (``silence``).

A broker is fenced when it was silent for ``broker_timeout_ms``, and taken back as soon as it is heard again.
One that was admitted and has not registered yet is not alive, heard or not.
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
    """The commands that make the image agree with who was heard at the last look, and who has been silent."""
    commands: list[FenceBroker | UnfenceBroker] = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        if broker.alive and silent_ms.get(broker_id, 0.0) >= broker_timeout_ms:
            commands.append(FenceBroker(broker_id, broker.incarnation))
        elif not broker.alive and broker.incarnation and broker_id in heard:
            commands.append(UnfenceBroker(broker_id, broker.incarnation))
    return commands
