"""Which brokers count as alive: a pure decision of the active controller.

Decides: which brokers to fence and which to take back. Leaves to others: hearing from brokers and
keeping time (``service``).

A broker is fenced when nothing came from it for ``dead_timeout_ms``, counted from when this
controller took over at the earliest: a new controller has not had the chance to hear anybody. It
is taken back as soon as it is heard again.
"""

from __future__ import annotations

from collections.abc import Mapping

from partitions.metadata.commands import FenceBroker, UnfenceBroker
from partitions.metadata.image import MetadataImage
from raftlog.types import NodeId


def decide(
    image: MetadataImage,
    heard_at_ms: Mapping[NodeId, float],
    *,
    now_ms: float,
    leading_since_ms: float,
    dead_timeout_ms: float,
) -> list[FenceBroker | UnfenceBroker]:
    """The commands that make the image agree with when each broker was last heard from."""
    commands: list[FenceBroker | UnfenceBroker] = []
    for broker_id in sorted(image.brokers):
        broker = image.brokers[broker_id]
        heard_ms = heard_at_ms.get(broker_id)
        if broker.alive:
            silent_since_ms = leading_since_ms if heard_ms is None else max(heard_ms, leading_since_ms)
            if now_ms - silent_since_ms >= dead_timeout_ms:
                commands.append(FenceBroker(broker_id, broker.incarnation))
        elif heard_ms is not None and heard_ms >= leading_since_ms and now_ms - heard_ms < dead_timeout_ms:
            commands.append(UnfenceBroker(broker_id, broker.incarnation))
    return commands
