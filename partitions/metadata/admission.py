"""Which brokers may join the cluster: an id and addresses that no other broker uses.

Decides: the id of a broker that has none, and which requests are refused. Leaves to others: who may ask
(``api.resources.joining``), what an admitted broker is (``broker_commands``). Pure, as ``planner``.
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
"""In a request: the controller chooses the id."""


def check_admission(request: AdmitBroker, image: MetadataImage) -> AdmitBroker:
    """The command for a request, with an id. A repeated one gets the same. Raises ``Conflict``."""
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
    """The broker that this request has admitted, if it was the last one for its id."""
    if not admission_id:
        return None  # that of the first brokers
    return next((each for each in image.brokers.values() if each.admission_id == admission_id), None)


def refusal(image: MetadataImage, command: AdmitBroker) -> RaftlogError | None:
    """Why a broker cannot be admitted; None if it can."""
    broker_id = command.broker_id
    if not 1 <= broker_id <= BROKER_ID_MAX:
        return InvalidRequest(f"broker_id is {broker_id}; choose 1 to {BROKER_ID_MAX}", field="broker_id")
    if not command.admission_id:
        return InvalidRequest("admission_id is empty; draw one for each broker", field="admission_id")
    if command.admission_id in image.forgotten.values():
        return _admitted_a_forgotten_one(image, command)
    if broker_id in image.forgotten:
        return Conflict(
            f"the id {broker_id} is that of a broker that was removed for good, and is not given again; "
            "choose another id, or leave it out",
            broker_id=broker_id,
        )
    before = image.brokers.get(broker_id)
    if before is not None and before.alive:
        return Conflict(
            f"broker {broker_id} is alive at {_address(before)}; choose another id, or leave it out",
            broker_id=broker_id,
        )
    if before is not None and not command.replaces:
        state = "has been admitted and has not started yet" if not before.incarnation else "is down"
        return Conflict(
            f"the id {broker_id} is in use: its broker at {_address(before)} {state}; choose another id, or "
            "replace it, if it never comes back",
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
        f"this request admitted broker {broker_id}, which was removed for good since; make a new token with "
        "`raftlog cluster token`, and join with it",
        broker_id=broker_id,
    )


def _lowest_free(image: MetadataImage) -> NodeId:
    return next(
        NodeId(number) for number in count(1) if number not in image.brokers and number not in image.forgotten
    )


def _share_an_address(other: BrokerInfo, command: AdmitBroker) -> bool:
    ours = command.rpc_host, command.rpc_port
    return (other.rpc_host, other.rpc_port) == ours or other.http_url == command.http_url


def _address(broker: BrokerInfo) -> str:
    return f"{broker.rpc_host}:{broker.rpc_port}"
