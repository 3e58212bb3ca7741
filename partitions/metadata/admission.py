"""Decides which brokers may join the cluster: their ids and addresses must be unused.

The module also chooses a broker id if the request has none. Leaves to others: which callers may ask
(``api.resources.joining``), the metadata of an admitted broker (``broker_commands``). Pure, like ``planner``.
"""

from __future__ import annotations

from itertools import count

from msgspec import structs

from partitions.metadata.commands import AdmitBroker
from partitions.metadata.image import BrokerInfo, MetadataImage
from raftlog.errors import Conflict, InvalidRequest, RaftlogError
from raftlog.types import NodeId
from raftlog.wire.limits import BROKER_ID_MAX

ANY_ID = NodeId(0)
"""Broker id in a request that lets the controller choose."""


def check_admission(request: AdmitBroker, image: MetadataImage) -> AdmitBroker:
    """The command that admits the broker, with a broker id; a repeated request gets its first id again.

    Raises ``InvalidRequest``, ``Conflict``.
    """
    known = admitted(image, request.admission_id)
    if known is not None:
        return structs.replace(request, broker_id=known.broker_id)
    if request.admission_id and request.admission_id in image.forgotten.values():
        raise _admitted_a_forgotten_one(image, request)
    if request.broker_id == ANY_ID:
        request = structs.replace(request, broker_id=_lowest_free(image))
    refused = refusal(image, request)
    if refused is not None:
        raise refused
    return request


def admitted(image: MetadataImage, admission_id: str) -> BrokerInfo | None:
    """The broker admitted by the request with this id, unless a later request has replaced that broker."""
    if not admission_id:
        return None  # the first brokers have an empty admission id
    return next((each for each in image.brokers.values() if each.admission_id == admission_id), None)


def refusal(image: MetadataImage, command: AdmitBroker) -> RaftlogError | None:
    """The error if the broker in ``command`` cannot be admitted, else None."""
    broker_id = command.broker_id
    if not 1 <= broker_id <= BROKER_ID_MAX:
        return InvalidRequest(f"broker_id is {broker_id}; choose 1 to {BROKER_ID_MAX}", field="broker_id")
    if not command.admission_id:
        return InvalidRequest("admission_id is empty; send a random id for each broker", field="admission_id")
    if command.admission_id in image.forgotten.values():
        return _admitted_a_forgotten_one(image, command)
    if broker_id in image.forgotten:
        return Conflict(
            f"the id {broker_id} belonged to a broker that was removed, and cannot be used again; "
            "choose another id, or omit it",
            broker_id=broker_id,
        )
    before = image.brokers.get(broker_id)
    if before is not None and before.alive:
        return Conflict(
            f"broker {broker_id} is alive at {_address(before)}; choose another id, or omit it",
            broker_id=broker_id,
        )
    if before is not None and not command.replaces:
        state = "has been admitted and has not started yet" if not before.incarnation else "is down"
        return Conflict(
            f"the id {broker_id} is in use: its broker at {_address(before)} {state}; choose another id, or "
            "replace that broker if it will not return",
            broker_id=broker_id,
        )
    for other in image.brokers.values():
        if other.broker_id != broker_id and other.alive and _share_an_address(other, command):
            return Conflict(
                f"broker {other.broker_id} is alive at {_address(other)}, {other.http_url}; give each broker "
                "addresses of its own",
                broker_id=other.broker_id,
            )
    return None


def _admitted_a_forgotten_one(image: MetadataImage, command: AdmitBroker) -> Conflict:
    broker_id = next(node for node, request in image.forgotten.items() if request == command.admission_id)
    return Conflict(
        f"this request admitted broker {broker_id}, which was removed since; make a new token with "
        "`raftlog cluster token`, and join with the new token",
        broker_id=broker_id,
    )


def _lowest_free(image: MetadataImage) -> NodeId:
    return next(
        NodeId(number) for number in count(1) if number not in image.brokers and number not in image.forgotten
    )


def _share_an_address(other: BrokerInfo, command: AdmitBroker) -> bool:
    ours = command.rpc_host, command.rpc_port
    return (other.rpc_host, other.rpc_port) == ours or command.http_url in (other.http_url, other.https_url)


def _address(broker: BrokerInfo) -> str:
    return f"{broker.rpc_host}:{broker.rpc_port}"
