"""Turns requests into commands of the metadata log.

Decides: which requests are refused, and with ``placement`` the placement of new topics. Leaves to others:
which of two requests wins (``machine``) and replicating the command (``service``). Pure: equal requests on
equal images give equal commands, or equal errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from partitions.metadata import topic_config
from partitions.metadata.admission import check_admission
from partitions.metadata.commands import (
    AddPartitions,
    AdmitBroker,
    AlterTopicConfig,
    Command,
    CreateTopic,
    DecommissionBroker,
    DeleteTopic,
    DrainBroker,
    ForgetBroker,
    RecoveredUnsafely,
    RegisterBroker,
    StartPlan,
)
from partitions.metadata.decommissioning import check_decommission, check_drain
from partitions.metadata.features import HTTPS, check_broker, check_feature
from partitions.metadata.forgetting import check_forget, check_not_removed
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.move_planner import MoveReplicas, check_recovery, find_topic, plan_move
from partitions.metadata.names import check_name
from partitions.metadata.placement import Placement, default_replicas, place
from partitions.metadata.plans import check_plan
from partitions.metadata.shrink_planner import ShrinkTopic, plan_shrink
from raftlog.errors import Conflict, InvalidRequest, TopicExists
from raftlog.types import NodeId, TopicId
from raftlog.units import counted
from raftlog.wire.limits import PARTITIONS_MAX, REPLICATION_FACTORS


class NewTopic(msgspec.Struct, frozen=True, array_like=True, tag="new_topic"):
    """A request for a topic. A repeated request has an equal ``creation_id`` and makes no second topic.

    Without ``replication_factor`` the number of brokers decides (``default_replicas``).
    """

    name: str
    creation_id: str
    partitions: int
    replication_factor: int | None
    config: dict[str, int | str]
    internal: bool = False


class NewPartitions(msgspec.Struct, frozen=True, array_like=True, tag="new_partitions"):
    """A request for ``count`` more partitions of a topic that has ``expected`` partitions.

    A repeated request adds no partitions.
    """

    name: str
    topic_id: TopicId
    expected: int
    count: int
    expected_version: int | None = None
    expected_shape: int | None = None  # expected ``TopicInfo.shape_version``; None: any


Absolute = DeleteTopic | AlterTopicConfig | MoveReplicas | DrainBroker | DecommissionBroker
"""Requests that name the state to reach, so that ``is_done`` can tell whether a request is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerLimits:
    """Limits of the replicas on one broker, and of the partitions in the cluster."""

    replicas_per_broker_max: int = 4_000
    partitions_max: int = 20_000  # of the cluster


def plan(
    request: NewTopic | NewPartitions | ShrinkTopic | MoveReplicas | Command,
    image: MetadataImage,
    limits: PlannerLimits,
    members: Collection[NodeId] = (),
) -> Command:
    """The command that carries out a request. ``members`` of the metadata group count as brokers even before
    registration.

    Raises ``InvalidRequest``, ``Conflict``, ``TopicExists``, and the errors of the checks it calls.
    """
    match request:
        case NewTopic():
            return _plan_topic(request, image, limits, members)
        case NewPartitions():
            return _plan_partitions(request, image, limits)
        case ShrinkTopic():
            return plan_shrink(request, image)
        case MoveReplicas():
            return plan_move(request, image)
        case RecoveredUnsafely():
            return check_recovery(request, image)
        case DecommissionBroker():
            return check_decommission(request, image)
        case DrainBroker():
            return check_drain(request, image)
        case ForgetBroker():
            return check_forget(request, image)
        case AdmitBroker():
            return check_admission(request, image)
        case RegisterBroker(broker_id, http_url=url, feature_level=level):
            check_not_removed(image, broker_id)
            check_broker(image, broker_id, level)
            if not url:  # with TLS alone, which an older release does not expect
                check_feature(image, HTTPS)
            return request
        case StartPlan():
            return check_plan(request, image)
        case AlterTopicConfig(name, changes, expected_version, topic_id):
            topic = find_topic(image, name, topic_id)
            if topic.is_internal and "cleanup.policy" in changes:
                raise InvalidRequest(
                    f"topic {name!r} is internal, so its cleanup.policy stays compact: omit this setting",
                    field="config.cleanup.policy",
                )
            fewest = min(len(partition.target_replicas) for partition in topic.partitions)
            checked = topic_config.check(changes, replication_factor=fewest)
            return AlterTopicConfig(name, checked, expected_version, topic_id)
        case DeleteTopic(name, topic_id=topic_id):
            if find_topic(image, name, topic_id).is_internal:
                raise InvalidRequest(f"topic {name!r} is internal and cannot be deleted", field="name")
            return request
        case _:
            return request


def is_done(request: Absolute, image: MetadataImage) -> bool:
    """Whether the metadata already has the requested state; always False for requests with a condition."""
    match request:
        case DeleteTopic(name, None, topic_id):
            topic = image.topics.get(name)
            return topic is None or topic.topic_id != topic_id
        case AlterTopicConfig(name, changes, None, topic_id):
            topic = image.topics.get(name)
            if topic is None or topic.topic_id != topic_id:
                return False
            return all(topic.config.get(key) == value for key, value in changes.items())
        case MoveReplicas(name, partition, replicas, topic_id=topic_id, expected=None):
            topic = image.topics.get(name)
            return (
                topic is not None
                and topic.topic_id == topic_id
                and partition < len(topic.partitions)
                and topic.partitions[partition].target_replicas == replicas
            )
        case DrainBroker(broker_id, draining):
            broker = image.brokers.get(broker_id)
            return broker is not None and broker.draining == draining
        case DecommissionBroker(broker_id, decommissioned):
            broker = image.brokers.get(broker_id)
            return broker is not None and broker.decommissioned == decommissioned
    return False


def _plan_topic(
    request: NewTopic, image: MetadataImage, limits: PlannerLimits, members: Collection[NodeId]
) -> CreateTopic:
    check_name(request.name, internal=request.internal)
    exists = image.topics.get(request.name)
    if exists is not None:
        if exists.creation_id != request.creation_id:
            raise TopicExists(f"topic {request.name!r} already exists", topic=request.name)
        return CreateTopic(exists.name, exists.creation_id, placement_of(exists), dict(exists.config))
    if not 1 <= request.partitions <= PARTITIONS_MAX:
        raise InvalidRequest(
            f"partitions is {request.partitions}; give a topic 1 to {PARTITIONS_MAX}", field="partitions"
        )
    brokers = _usable_brokers(image)
    factor = _factor(request, image, members, usable=len(brokers))
    config = topic_config.check(request.config, replication_factor=factor)
    count = request.partitions
    _check_wanted("the topic needs", count, factor, image, limits, field="partitions")
    rows = place(brokers, _rows(image), count, factor)
    return CreateTopic(
        request.name,
        request.creation_id,
        _checked(rows, image, limits, field="partitions"),
        {key: value for key, value in config.items() if value is not None},
    )


def _plan_partitions(request: NewPartitions, image: MetadataImage, limits: PlannerLimits) -> AddPartitions:
    """The command that adds partitions. A repeated request gets the rows that the first request added."""
    topic = find_topic(image, request.name, request.topic_id)
    if topic.is_internal:
        raise InvalidRequest(
            f"topic {topic.name!r} is internal: its number of partitions cannot be changed",
            field="name",
        )
    count, before, factor = request.count, request.expected, topic.replication_factor
    if count < 1 or before + count > PARTITIONS_MAX:
        raise InvalidRequest(
            f"count is {count}, but topic {topic.name!r} has {counted(before, 'partition')} of at most "
            f"{PARTITIONS_MAX}; add 1 to {max(PARTITIONS_MAX - before, 0)}, or create another topic",
            field="count",
        )
    known = len(topic.partitions)
    added = placement_of(topic)[before:] if known == before + count else ()
    if known == before:
        _check_none_decommissioned(topic)
        topic_config.check(topic.config, replication_factor=factor)
        brokers = _usable_brokers(image)
        _check_usable(f"topic {topic.name!r} has replication_factor {factor}", factor, len(brokers), "count")
        _check_wanted("the partitions need", count, factor, image, limits, field="count")
        added = _checked(place(brokers, _rows(image), count, factor), image, limits, field="count")
    return AddPartitions(
        topic.name, topic.topic_id, before, added, request.expected_version, request.expected_shape
    )


def _check_none_decommissioned(topic: TopicInfo) -> None:
    decommissioned = [each.partition for each in topic.partitions if each.is_decommissioned]
    if decommissioned:
        raise Conflict(
            f"partitions {decommissioned} of topic {topic.name!r} are decommissioned; recommission them, "
            "which keeps their records, or wait until retention has deleted their records",
            topic=topic.name,
            partitions=len(topic.partitions),
        )


def _rows(image: MetadataImage) -> list[tuple[NodeId, ...]]:
    return [partition.replicas for topic in image.topics.values() for partition in topic.partitions]


def placement_of(topic: TopicInfo) -> Placement:
    """The replicas of each partition of a topic."""
    return tuple(partition.replicas for partition in topic.partitions)


def _usable_brokers(image: MetadataImage) -> dict[NodeId, str | None]:
    return {
        broker.broker_id: broker.rack
        for broker in image.brokers.values()
        if broker.alive and not broker.draining
    }


def _factor(request: NewTopic, image: MetadataImage, members: Collection[NodeId], *, usable: int) -> int:
    """The replication factor of a new topic. The default counts brokers that are down, too."""
    if request.replication_factor is not None:
        _check_factor(request.replication_factor, usable)
        return request.replication_factor
    factor = default_replicas(sum(map(image.is_in_use, {*image.brokers, *members})))
    if factor > usable:
        raise InvalidRequest(
            f"a topic of this cluster has {counted(factor, 'replica')} by default, but only {usable} brokers "
            "take new replicas; start more brokers, or end the drain of some"
        )
    return factor


def _check_factor(factor: int, usable: int) -> None:
    if factor not in REPLICATION_FACTORS:
        even = factor > 0 and factor % 2 == 0
        why = (
            f"{factor} replicas tolerate no more failures than {factor - 1}, as more than half must agree; "
            if even
            else ""
        )
        raise InvalidRequest(
            f"replication_factor is {factor}; {why}choose 1, 3, 5 or 7", field="replication_factor"
        )
    remedy = "replication_factor", "choose a smaller factor, or start more brokers"
    _check_usable(f"replication_factor is {factor}", factor, usable, *remedy)


def _check_usable(
    what: str,
    factor: int,
    usable: int,
    field: str,
    remedy: str = "start more brokers, or end the drain of some",
) -> None:
    if factor > usable:
        raise InvalidRequest(f"{what}, but only {usable} brokers take new replicas; {remedy}", field=field)


def _check_wanted(
    who: str, partitions: int, factor: int, image: MetadataImage, limits: PlannerLimits, *, field: str
) -> None:
    """Raise ``InvalidRequest`` if the new partitions or their replicas would exceed the cluster's limits."""
    before = sum(len(topic.partitions) for topic in image.topics.values())
    if before + partitions > limits.partitions_max:
        raise InvalidRequest(
            f"{who} {partitions} partitions, but the cluster has {before} of at most "
            f"{limits.partitions_max}; choose fewer, delete topics, or raise limits.cluster_partitions_max "
            "on all brokers",
            field=field,
        )
    held = _held(image)
    room = sum(max(limits.replicas_per_broker_max - held[node], 0) for node in _usable_brokers(image))
    if partitions * factor > room:
        raise InvalidRequest(
            f"{who} {partitions * factor} replicas, but the cluster has room for {room} more "
            f"({limits.replicas_per_broker_max} a broker); choose fewer partitions, delete topics, "
            "or add brokers",
            field=field,
        )


def _checked(rows: Placement, image: MetadataImage, limits: PlannerLimits, *, field: str) -> Placement:
    """Return ``rows``.

    Raises ``InvalidRequest`` if a broker gets too many replicas, as unequal racks may cause.
    """
    held = _held(image)
    held.update(node for row in rows for node in row)
    node, most = max(held.items(), key=lambda one: one[1])
    if most > limits.replicas_per_broker_max and any(node in row for row in rows):
        raise InvalidRequest(
            f"broker {node} would have {most} replicas of at most {limits.replicas_per_broker_max} "
            "(limits.broker_replicas_max), although other brokers have room: add a broker in its rack, "
            "balance the cluster with `raftlog cluster plan`, or choose fewer partitions",
            field=field,
        )
    return rows


def _held(image: MetadataImage) -> Counter[NodeId]:
    """The number of replicas that each broker has, or gets by the current moves."""
    return Counter(
        node
        for topic in image.topics.values()
        for partition in topic.partitions
        for node in partition.all_replicas
    )
