"""Issues tokens for new brokers, and admits them."""

from __future__ import annotations

from aiohttp import web

from api.http.bodies import read_json
from api.http.routes import Call, Route, json_response
from broker.addresses import is_loopback, is_unspecified
from partitions.metadata.admission import ANY_ID
from partitions.metadata.commands import AdmitBroker as AdmitCommand
from partitions.metadata.image import MetadataImage
from raftlog.errors import Conflict, InvalidRequest
from raftlog.types import NodeId
from raftlog.wire import brokers, joining
from raftlog.wire.joining import AdmitBroker, BrokerAddress, BrokerAdmitted, IssuedJoinToken


async def create_join_token(call: Call) -> web.StreamResponse:
    """Issue a token with which a broker can join."""
    services, image = call.services, await call.metadata()
    in_use = [each for each in image.brokers.values() if each.alive and not each.decommissioned]
    urls = [url for each in in_use if (url := each.url(call.request.scheme)) is not None]
    if not urls:
        raise Conflict(
            f"no broker of this cluster advertises a URL with {call.request.scheme}://, which the token "
            "needs: ask with the other scheme, or set the advertised URLs"
        )
    text, token = services.join_tokens.issue(image.cluster_id, urls, services.clock.wall_ms(), services.rng)
    return json_response(IssuedJoinToken(text, token.expires_at), 201)


async def admit_broker(call: Call) -> web.StreamResponse:
    """Admit a broker to the cluster."""
    services = call.services
    request = await read_json(call, AdmitBroker)
    image = await call.metadata()
    services.join_tokens.check(request, image.cluster_id, services.clock.wall_ms())
    _check_addresses(request, image)
    broker = await services.controller.admit_broker(
        AdmitCommand(
            admission_id=request.admission_id,
            broker_id=ANY_ID if request.broker_id is None else NodeId(request.broker_id),
            http_url=request.http,
            rpc_host=request.host,
            rpc_port=request.port,
            rack=request.rack,
            replaces=request.replace,
        ),
        services.limits.control_timeout_ms,
    )
    image = services.controller.image
    peers = [
        BrokerAddress(each.broker_id, each.rpc_host, each.rpc_port)
        for each in (image.brokers[number] for number in sorted(image.brokers))
        if not each.decommissioned
    ]
    body = BrokerAdmitted(broker.broker_id, image.cluster_id, peers)
    return json_response(body, 201, {"Location": brokers.DESCRIBE.at(broker=broker.broker_id)})


def _check_addresses(request: AdmitBroker, image: MetadataImage) -> None:
    """Raise an error for addresses that other brokers or clients can never reach."""
    if is_unspecified(request.host):
        raise InvalidRequest(
            f"host is {request.host!r}, which is not the address of a machine; use an address that the other "
            "brokers can reach",
            field="host",
        )
    for other in image.brokers.values():
        if other.alive and is_loopback(other.rpc_host) != is_loopback(request.host):
            raise InvalidRequest(
                f"host is {request.host!r}, but broker {other.broker_id} is at {other.rpc_host}: brokers "
                "with a loopback address and others cannot reach each other; use one kind for all brokers",
                field="host",
            )


ROUTES = (
    Route(joining.JOIN_TOKEN, create_join_token),
    Route(joining.ADMIT, admit_broker),
)
