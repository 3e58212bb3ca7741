"""Decides which brokers may be decommissioned or drained, so that the other brokers can hold all replicas.

Also decides why other requests are refused. Leaves to others: moving the replicas (``healing`` plans it, as
for a dead broker), and the change of the metadata (``broker_commands``). Pure, like ``planner``.

A draining broker keeps its replicas and is about to be restarted, so one broker may always be drained. A
second broker may be drained if the remaining brokers can hold every topic.
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.commands import DecommissionBroker, DrainBroker
from partitions.metadata.image import BrokerInfo, MetadataImage
from raftlog.errors import Conflict, InvalidRequest
from raftlog.types import NodeId
from raftlog.units import counted

NAMED_MAX: Final = 5  # topics that a message names


def check_decommission(request: DecommissionBroker, image: MetadataImage) -> DecommissionBroker:
    """Return the command for a request to decommission a broker, or to recommission it.

    Raises ``InvalidRequest`` for an unknown broker, and ``Conflict`` if a partition of the broker has more
    replicas than the other brokers can hold.
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
            f"{_factors(too_many)}, but without broker {request.broker_id} only {counted(others, 'broker')} "
            "can hold replicas; start or recommission more brokers, or give the partitions fewer replicas",
            broker_id=request.broker_id,
            topics=sorted(too_many),
        )
    return request


def check_drain(request: DrainBroker, image: MetadataImage) -> DrainBroker:
    """Return the command for a request to drain a broker, or to end its drain.

    Raises ``InvalidRequest`` for an unknown broker, and ``Conflict`` if another broker is draining or down
    and the remaining brokers cannot hold a topic.
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
            f"brokers {out} are draining or down, and without broker {request.broker_id} only "
            f"{counted(others, 'broker')} would take replicas: {_factors(too_many)}; first recommission or "
            "start these brokers, or add brokers",
            broker_id=request.broker_id,
            topics=sorted(too_many),
        )
    return request


def _broker(image: MetadataImage, broker_id: NodeId) -> BrokerInfo:
    broker = image.brokers.get(broker_id)
    if broker is None:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise InvalidRequest(
            f"no broker {broker_id} is registered; the brokers are {known}", field="broker_id"
        )
    return broker


def _that_take_replicas(image: MetadataImage, *, without: NodeId) -> list[NodeId]:
    return [
        other.broker_id
        for other in image.brokers.values()
        if other.alive and not other.draining and other.broker_id != without
    ]


def _factors(replicas: dict[str, int]) -> str:
    """A text that groups the topics by replication factor."""
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
