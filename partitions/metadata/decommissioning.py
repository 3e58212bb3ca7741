"""Which brokers may be decommissioned or drained: those without which the others can hold all replicas.

Decides: which requests are refused, and why. Leaves to others: moving the replicas (``healing`` plans it as
for a broker that is dead), and what a decommissioned broker is (``broker_commands``). Pure, as ``planner``.

A drained broker keeps its replicas, and is about to be restarted: one broker at a time may be drained in
every cluster. A second one may if the brokers that are left can hold every topic.
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.commands import DecommissionBroker, DrainBroker
from partitions.metadata.image import BrokerInfo, MetadataImage
from raftlog.errors import Conflict, InvalidRequest
from raftlog.types import NodeId
from raftlog.units import counted

NAMED_MAX: Final = 5  # topics in a message


def check_decommission(request: DecommissionBroker, image: MetadataImage) -> DecommissionBroker:
    """The command for a request. Raises ``InvalidRequest`` for an unknown broker, and ``Conflict`` where a
    partition of the broker has more replicas than the other brokers could hold.
    """
    broker = _broker(image, request.broker_id)
    if broker.decommissioned == request.decommissioned or not request.decommissioned:
        return request
    others = len(_that_take_replicas(image, without=request.broker_id))
    too_many = {
        topic.name: len(partition.target_replicas)
        for topic in image.topics.values()
        for partition in topic.partitions
        if request.broker_id in partition.all_replicas and len(partition.target_replicas) > others
    }
    if too_many:
        raise Conflict(
            f"{_factors(too_many)}, and without broker {request.broker_id} only {counted(others, 'broker')} "
            "can hold one; start more brokers, recommission others, or give the partitions fewer replicas",
            broker_id=request.broker_id,
            topics=sorted(too_many),
        )
    return request


def check_drain(request: DrainBroker, image: MetadataImage) -> DrainBroker:
    """The command for a request. Raises ``Conflict`` where another broker is drained or down already, and the
    brokers that are left could not hold a topic.
    """
    broker = _broker(image, request.broker_id)
    if broker.draining or not request.draining:
        return request
    out = [
        each.broker_id
        for node, each in sorted(image.brokers.items())
        if image.is_in_use(node) and node != request.broker_id and (each.draining or not each.alive)
    ]
    others = len(_that_take_replicas(image, without=request.broker_id))
    too_many = {
        topic.name: topic.replication_factor
        for topic in image.topics.values()
        if topic.replication_factor > others
    }
    if out and too_many:
        raise Conflict(
            f"brokers {out} are drained or down, and without broker {request.broker_id} only "
            f"{counted(others, 'broker')} would take replicas: {_factors(too_many)}; recommission or start "
            "these brokers first, or add brokers",
            broker_id=request.broker_id,
            topics=sorted(too_many),
        )
    return request


def _broker(image: MetadataImage, broker_id: NodeId) -> BrokerInfo:
    broker = image.brokers.get(broker_id)
    if broker is None:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise InvalidRequest(f"no broker {broker_id} is registered; there are {known}", field="broker_id")
    return broker


def _that_take_replicas(image: MetadataImage, *, without: NodeId) -> list[NodeId]:
    return [
        other.broker_id
        for other in image.brokers.values()
        if other.alive and not other.draining and other.broker_id != without
    ]


def _factors(replicas: dict[str, int]) -> str:
    """The topics by their replication factors."""
    by_factor: dict[int, list[str]] = {}
    for name, factor in sorted(replicas.items()):
        by_factor.setdefault(factor, []).append(repr(name))
    return " and ".join(
        f"{'topics' if len(names) > 1 else 'topic'} {_some(names)} "
        f"{'have' if len(names) > 1 else 'has'} replication factor {factor}"
        for factor, names in sorted(by_factor.items(), reverse=True)
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more
