"""Redirects a request to the leader of its partition, as the parameter ``route`` says."""

from __future__ import annotations

from aiohttp import web

from api.http.parameters import one_of
from api.http.routes import Call
from raftlog.errors import InvalidRequest, NoLeader, NotLeader
from raftlog.types import TopicPartition


def redirect_to_leader(call: Call, target: TopicPartition) -> web.Response | None:
    """Return a redirect to the leader for ``route=redirect``; ``None`` if this broker handles the request.

    Any broker handles a request with ``read_from=closest``. Raises ``NotLeader`` for ``route=none``, and
    ``NoLeader`` if the leader is unknown.
    """
    route = one_of(call.query, "route", ("forward", "redirect", "none"))
    if call.query.get("read_from") == "closest":
        if route == "redirect":
            raise InvalidRequest(
                "route=redirect leads to the leader; with read_from=closest send forward or none",
                field="route",
            )
        return None
    services = call.services
    leader = services.gateway.leader_of(target)
    if route == "forward" or leader == services.broker_id:
        return None
    scheme = call.request.scheme
    url, address = services.url_of(leader, scheme), services.address_of(leader, scheme)
    if url is None:
        why = (
            f"{target} is electing a leader"
            if leader is None
            else f"broker {leader} leads {target} and has no {scheme} listener; send route=forward"
        )
        raise NoLeader(why, topic=target.topic, partition=target.partition)
    if route == "none":
        raise NotLeader(
            f"broker {leader} at {address} leads {target}, not this broker ({services.broker_id})",
            leader=leader,
            leader_http=address,
            topic=target.topic,
            partition=target.partition,
        )
    return web.Response(status=307, headers={"Location": url.rstrip("/") + call.request.path_qs})
