"""Effects of commands about brokers on the metadata: joining, registration, fencing, leaving.

Decides: which process of a broker is the newest, and which fields a new process keeps. Leaves to others:
which brokers are fenced (``liveness``), which may join (``admission``), be decommissioned
(``decommissioning``) and be removed (``forgetting``). Pure and total, like ``machine``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from partitions.metadata import replica_commands
from partitions.metadata.admission import admitted, refusal
from partitions.metadata.commands import AdmitBroker, ForgetBroker, RegisterBroker
from partitions.metadata.forgetting import refusal_to_forget, removed_for_good
from partitions.metadata.image import BrokerInfo, MetadataImage
from raftlog.errors import InvalidRequest, PreconditionFailed, RaftlogError
from raftlog.types import NodeId

Applied = tuple[MetadataImage, BrokerInfo | RaftlogError]


def admit(image: MetadataImage, command: AdmitBroker, version: int) -> Applied:
    """Add a broker that is allowed to join; a running process with the broker's id is superseded.

    The disk id in the metadata stays, so that a new disk is noticed when the broker registers.
    """
    known = admitted(image, command.admission_id)
    if known is not None:
        return image, known  # a repeated request
    refused = refusal(image, command)
    if refused is not None:
        return image, refused
    before = image.brokers.get(command.broker_id)
    broker = BrokerInfo(
        broker_id=command.broker_id,
        incarnation="",
        http_url=command.http_url,
        rpc_host=command.rpc_host,
        rpc_port=command.rpc_port,
        rack=command.rack,
        alive=False,
        disk_id="" if before is None else before.disk_id,
        admission_id=command.admission_id,
    )
    return _with_broker(image, broker, version)


def register(image: MetadataImage, command: RegisterBroker, version: int) -> Applied:
    """Register a new process of a broker; ``draining`` and ``decommissioned`` keep their values."""
    before = image.brokers.get(command.broker_id)
    if command.broker_id in image.forgotten:
        return image, removed_for_good(command.broker_id)
    if before is not None and before.incarnation not in (command.incarnation, command.replaces):
        return image, _started_again(command.broker_id)
    broker = BrokerInfo(
        broker_id=command.broker_id,
        incarnation=command.incarnation,
        http_url=command.http_url,
        https_url=command.https_url,
        rpc_host=command.rpc_host,
        rpc_port=command.rpc_port,
        rack=command.rack,
        draining=before is not None and before.draining,
        decommissioned=before is not None and before.decommissioned,
        disk_id=command.disk_id,
        admission_id="" if before is None else before.admission_id,
    )
    if before is not None and before.disk_id not in ("", command.disk_id):
        image = replica_commands.disk_replaced(image, command.broker_id, version)
    return _with_broker(image, broker, version)


def fence(image: MetadataImage, version: int, broker_id: NodeId, incarnation: str, *, alive: bool) -> Applied:
    """Set whether this process of a broker counts as alive; refuse it if a later process has registered."""

    def changed(broker: BrokerInfo) -> BrokerInfo | RaftlogError:
        if incarnation != broker.incarnation:
            return _started_again(broker_id)
        return replace(broker, alive=alive)

    return _change(image, version, broker_id, changed)


def drain(image: MetadataImage, version: int, broker_id: NodeId, *, draining: bool) -> Applied:
    """Set whether a broker is draining (gets no new replicas); a decommissioned broker stays draining."""
    return _change(
        image,
        version,
        broker_id,
        lambda broker: replace(broker, draining=draining or broker.decommissioned),
    )


def decommission(image: MetadataImage, version: int, broker_id: NodeId, *, decommissioned: bool) -> Applied:
    """Decommission a broker, or return it to use.

    A broker drains from its decommissioning until its return.
    """
    return _change(
        image,
        version,
        broker_id,
        lambda broker: replace(broker, draining=decommissioned, decommissioned=decommissioned),
    )


def forget(
    image: MetadataImage, command: ForgetBroker, version: int
) -> tuple[MetadataImage, int | RaftlogError]:
    """Remove a broker from the metadata. A repeated command changes nothing."""
    if command.broker_id in image.forgotten:
        return image, image.version
    objection = refusal_to_forget(image, command)
    if objection is not None:
        return image, objection
    brokers = dict(image.brokers)
    former = brokers.pop(command.broker_id)
    forgotten = {**image.forgotten, command.broker_id: former.admission_id}
    return replace(image, brokers=brokers, forgotten=forgotten, version=version), version


def _change(
    image: MetadataImage,
    version: int,
    broker_id: NodeId,
    changed: Callable[[BrokerInfo], BrokerInfo | RaftlogError],
) -> Applied:
    broker = image.brokers.get(broker_id)
    if broker is None:
        return image, InvalidRequest(f"no broker {broker_id} is registered", field="broker_id")
    found = changed(broker)
    return (image, found) if isinstance(found, RaftlogError) else _with_broker(image, found, version)


def _with_broker(image: MetadataImage, broker: BrokerInfo, version: int) -> Applied:
    if image.brokers.get(broker.broker_id) == broker:
        return image, broker
    brokers = {**image.brokers, broker.broker_id: broker}
    return replace(image, brokers=brokers, version=version), broker


def _started_again(broker_id: NodeId) -> PreconditionFailed:
    return PreconditionFailed(f"broker {broker_id} has been restarted since the request; send it again")
