"""Which brokers may be decommissioned: those whose replicas other brokers can take.

Decides: which requests are refused, and why. Leaves to others: moving the replicas (``healing`` plans it as
for a broker that is dead), and what a decommissioned broker is (``broker_commands``). Pure, as ``planner``.
"""

from __future__ import annotations

from partitions.metadata.commands import DecommissionBroker
from partitions.metadata.image import MetadataImage
from raftlog.errors import Conflict, InvalidRequest
from raftlog.units import counted


def check_decommission(request: DecommissionBroker, image: MetadataImage) -> DecommissionBroker:
    """The command for a request. Raises ``InvalidRequest`` for an unknown broker, and ``Conflict`` where a
    partition of the broker has more replicas than the other brokers could hold.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise InvalidRequest(
            f"no broker {request.broker_id} is registered; there are {known}", field="broker_id"
        )
    if broker.decommissioned == request.decommissioned or not request.decommissioned:
        return request
    others = [
        other.broker_id
        for other in image.brokers.values()
        if other.alive and not other.draining and other.broker_id != request.broker_id
    ]
    for topic in image.topics.values():
        for partition in topic.partitions:
            wanted = partition.target_replicas
            if request.broker_id in partition.all_replicas and len(wanted) > len(others):
                raise Conflict(
                    f"{topic.name}/{partition.partition} has {counted(len(wanted), 'replica')}, and without "
                    f"broker {request.broker_id} only {counted(len(others), 'broker')} can hold one; start "
                    "more brokers, recommission others, or give the partition fewer replicas",
                    broker_id=request.broker_id,
                    topic=topic.name,
                    partition=partition.partition,
                )
    return request
