"""Decides which brokers may be removed from the metadata, and why other requests are refused.

Leaves to others: the change of the metadata (``broker_commands``), and refusing processes of a removed broker
(``partitions.hosting.peer_addresses``).

A broker may be removed if it does not run, holds no replica, has no vote on metadata, and is out of use:
decommissioned, never started, or dead. Replicas that the broker may have, but no leader has reported, count.
The id is never used again, because messages still in flight may carry votes and acknowledgements under it.
"""

from __future__ import annotations

from collections.abc import Collection

from partitions.metadata.commands import ForgetBroker
from partitions.metadata.features import FORGETTING, check_feature
from partitions.metadata.image import BrokerInfo, MetadataImage
from raftlog.errors import BrokerNotFound, Conflict, PreconditionFailed, RaftlogError
from raftlog.types import NodeId
from raftlog.units import counted

NAMED_MAX = 5  # partitions that a message names


def check_forget(request: ForgetBroker, image: MetadataImage) -> ForgetBroker:
    """Return the command that removes a broker. A repeated request is no error.

    Raises ``BrokerNotFound``, ``Conflict``.
    """
    check_feature(image, FORGETTING)
    if request.broker_id in image.forgotten:
        return request
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise _unknown(image, request.broker_id)
    command = ForgetBroker(request.broker_id, request.incarnation or broker.incarnation)
    objection = refusal_to_forget(image, command)
    if objection is not None:
        raise objection
    return command


def check_out_of_use(
    command: ForgetBroker,
    image: MetadataImage,
    *,
    voters: Collection[NodeId],
    dead: Collection[NodeId],
    is_heard: bool,
) -> None:
    """Raise ``Conflict`` if the broker is heard, votes in the metadata group, or may come back."""
    broker_id = command.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None:
        return
    if is_heard:
        raise _alive(broker)
    if image.is_in_use(broker_id) and broker_id not in dead:
        raise Conflict(
            f"broker {broker_id} is down, but it is neither decommissioned nor dead for "
            "timing.restore_after_ms; if it will not return, decommission it with "
            f"`raftlog broker decommission {broker_id} --wait 10m`",
            broker_id=broker_id,
        )
    if broker_id in voters:
        raise Conflict(
            f"broker {broker_id} still votes on metadata; it loses its vote once it is decommissioned and a "
            "majority of the voters is alive: retry then",
            broker_id=broker_id,
        )


def refusal_to_forget(image: MetadataImage, command: ForgetBroker) -> RaftlogError | None:
    """The error if the state in the metadata forbids to remove the broker, else None."""
    broker_id = command.broker_id
    broker = image.brokers.get(broker_id)
    if broker is None:
        return _unknown(image, broker_id)
    if broker.incarnation != command.incarnation:
        return PreconditionFailed(
            f"broker {broker_id} has been restarted since the request; send it again", broker_id=broker_id
        )
    if broker.alive:
        return _alive(broker)
    held = [
        f"{topic.name}/{partition.partition}"
        for topic in image.topics.values()
        for partition in topic.partitions
        if broker_id in partition.possible_replicas
    ]
    if not held:
        return None
    more = f" and {len(held) - NAMED_MAX} more" if len(held) > NAMED_MAX else ""
    return Conflict(
        f"broker {broker_id} still has {counted(len(held), 'replica')}: {', '.join(held[:NAMED_MAX])}{more}; "
        f"move them with `raftlog broker decommission {broker_id} --wait 10m`, and retry",
        broker_id=broker_id,
        replicas=len(held),
    )


def check_not_removed(image: MetadataImage, broker_id: NodeId) -> None:
    """Raise ``Conflict`` if the broker was removed: its processes may not join again."""
    if broker_id in image.forgotten:
        raise removed_for_good(broker_id)


def removed_for_good(broker_id: NodeId) -> Conflict:
    """The error that a process of a removed broker receives."""
    return Conflict(
        f"broker {broker_id} was removed from the cluster: stop this process; to use the machine again, let "
        "it join under another id with `raftlog cluster join` and an empty data directory",
        broker_id=broker_id,
    )


def _alive(broker: BrokerInfo) -> Conflict:
    return Conflict(
        f"broker {broker.broker_id} is alive at {broker.rpc_host}:{broker.rpc_port}; decommission it with "
        f"`raftlog broker decommission {broker.broker_id} --wait 10m`, stop its process, and retry",
        broker_id=broker.broker_id,
    )


def _unknown(image: MetadataImage, broker_id: NodeId) -> BrokerNotFound:
    known = ", ".join(map(str, sorted(image.brokers)))
    return BrokerNotFound(f"there is no broker {broker_id}; the brokers are {known}", broker_id=broker_id)
