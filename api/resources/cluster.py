"""Handles operations on brokers, the cluster as a whole, its controller, and producer ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from api.http import pagination
from api.http.bodies import read_json
from api.http.parameters import WholeNumber
from api.http.routes import (
    LIMIT,
    PAGE_TOKEN,
    Call,
    Parameter,
    Route,
    json_response,
)
from broker.ports import ControllerPort
from partitions.metadata.commands import DecommissionBroker, DrainBroker, ForgetBroker
from partitions.metadata.image import BrokerInfo, MetadataImage
from partitions.routing.confirmed_topics import CONFIRM_MS
from raftlog import errors
from raftlog.errors import NoLeader
from raftlog.types import NodeId
from raftlog.wire import bodies, brokers, cluster, records
from raftlog.wire.limits import BROKER_ID_MAX

REFUSED_TIMEOUT_MS: Final = 1000


async def list_brokers(call: Call) -> web.StreamResponse:
    """List all registered brokers."""
    brokers = (await call.metadata()).brokers
    keyed = [(pagination.number_key(number), brokers[number]) for number in sorted(brokers)]
    shown, token = pagination.page(keyed, call.query, pagination.NUMBERS)
    return json_response(bodies.BrokerList([_body(call, broker) for broker in shown], token))


async def get_broker(call: Call) -> web.StreamResponse:
    """Describe one broker."""
    image = await _metadata(call)
    return json_response(_body(call, _broker(call, image), image))


async def drain_broker(call: Call) -> web.StreamResponse:
    """Drain a broker: it gets no new replicas and no leaderships."""
    return await _changed(call, DrainBroker)


async def decommission_broker(call: Call) -> web.StreamResponse:
    """Move all replicas of a broker to other brokers."""
    return await _changed(call, DecommissionBroker)


async def recommission_broker(call: Call) -> web.StreamResponse:
    """Give a decommissioned or drained broker new replicas and leaderships again."""
    return await _changed(call, lambda broker: DecommissionBroker(broker, decommissioned=False))


async def _changed(
    call: Call, command: Callable[[NodeId], DrainBroker | DecommissionBroker]
) -> web.StreamResponse:
    broker = _broker(call, await _metadata(call))
    image = await call.services.controller.change_broker(
        command(broker.broker_id), call.services.limits.control_timeout_ms
    )
    return json_response(_body(call, _broker(call, image), image))


async def forget_broker(call: Call) -> web.StreamResponse:
    """Remove a broker permanently."""
    image = await _metadata(call)
    broker_id = _broker_id(call)
    if broker_id is None or broker_id not in image.forgotten:
        broker_id = _broker(call, image).broker_id
    image = await call.services.controller.change_broker(
        ForgetBroker(broker_id), call.services.limits.control_timeout_ms
    )
    return json_response(bodies.BrokerForgotten(broker_id, image.version))


def _broker_id(call: Call) -> NodeId | None:
    text = call.match_info["broker"]
    return NodeId(int(text)) if text.isascii() and text.isdigit() and len(text) < 12 else None


async def _metadata(call: Call) -> MetadataImage:
    """The metadata of this broker, confirmed by the controller if they do not have the broker of the path."""
    image, broker_id = await call.metadata(), _broker_id(call)
    if broker_id is None or broker_id in image.brokers or broker_id in image.forgotten:
        return image
    return await call.services.controller.current_image(CONFIRM_MS)


def _broker(call: Call, image: MetadataImage) -> BrokerInfo:
    broker_id = _broker_id(call)
    found = None if broker_id is None else image.brokers.get(broker_id)
    if found is not None:
        return found
    if broker_id in image.forgotten:
        raise errors.BrokerNotFound(
            f"broker {broker_id} was removed permanently, and its id is never used again"
        )
    text = call.match_info["broker"][:32]
    raise errors.BrokerNotFound(f"there is no broker {text!r}; GET {brokers.LIST.path} lists them")


async def get_cluster(call: Call) -> web.StreamResponse:
    """Describe the cluster as this broker knows it."""
    image, controller = await call.metadata(), call.services.controller
    return json_response(
        bodies.ClusterDescription(
            image.cluster_id,
            controller.leader,
            image.version,
            len(image.brokers),
            call.services.version,
            [*sorted(controller.members.voters)],
            image.feature_level,
        )
    )


async def get_controller(call: Call) -> web.StreamResponse:
    """Describe the active controller, and the moves that the controller knows to make no progress."""
    controller = call.services.controller
    leader = controller.leader
    if leader is None:
        raise NoLeader("no controller is active; one is being elected")
    url = call.services.url_of(leader, call.request.scheme)
    refused = await _refused(controller)
    return json_response(bodies.ControllerDescription(leader, url, controller.image.version, refused))


async def _refused(controller: ControllerPort) -> list[bodies.RefusedReplica] | None:
    try:
        reports = await controller.refused(REFUSED_TIMEOUT_MS)
    except NoLeader:
        return None
    return [bodies.RefusedReplica(one.broker_id, one.name, one.partition, one.reason) for one in reports]


async def create_producer(call: Call) -> web.StreamResponse:
    """Allocate a producer id for deduplication."""
    await read_json(call, bodies.CreateProducer)
    limits = call.services.limits
    (number,) = await call.services.controller.allocate_producer_ids(1, limits.control_timeout_ms)
    return json_response(bodies.ProducerIdentity(call.services.producer_ids.id_of(number), 0), 201)


def _body(call: Call, broker: BrokerInfo, image: MetadataImage | None = None) -> bodies.BrokerDescription:
    return bodies.BrokerDescription(
        broker.broker_id,
        broker.url(call.request.scheme),
        broker.rack,
        broker.alive,
        broker.draining,
        broker.decommissioned,
        None if image is None else image.replicas_on(broker.broker_id),
        broker.broker_id in call.services.controller.members.all_voters,
        "" if image is None else broker.incarnation,
    )


_BROKER = Parameter("broker", "id of a broker", WholeNumber(1, BROKER_ID_MAX).schema, "path")

ROUTES = (
    Route(brokers.LIST, list_brokers, (LIMIT, PAGE_TOKEN)),
    Route(brokers.DESCRIBE, get_broker, (_BROKER,)),
    Route(brokers.DRAIN, drain_broker, (_BROKER,)),
    Route(brokers.DECOMMISSION, decommission_broker, (_BROKER,)),
    Route(brokers.RECOMMISSION, recommission_broker, (_BROKER,)),
    Route(brokers.FORGET, forget_broker, (_BROKER,)),
    Route(cluster.DESCRIBE, get_cluster),
    Route(cluster.CONTROLLER, get_controller),
    Route(records.CREATE, create_producer),
)
