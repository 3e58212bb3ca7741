"""Answers liveness, readiness and startup checks, and reports the version."""

from __future__ import annotations

from aiohttp import web

from api.http.routes import Call, Route, json_response
from broker.ports import Checks
from raftlog.wire import bodies, health


async def live(call: Call) -> web.StreamResponse:
    """Report whether the process works."""
    return _answer(call.services.health.live)


async def ready(call: Call) -> web.StreamResponse:
    """Report whether the broker can serve requests, and the state of its disk and replicas."""
    health = call.services.health
    return _answer(health.ready, health.state())


async def startup(call: Call) -> web.StreamResponse:
    """Report whether the broker has completed its start."""
    return _answer(call.services.health.startup)


async def version(call: Call) -> web.StreamResponse:
    """Return the version of raftlog."""
    return json_response(bodies.Version(call.services.version))


def _answer(probe: Checks, state: bodies.BrokerState | None = None) -> web.Response:
    checks = dict(probe())
    if all(checks.values()):
        return json_response(bodies.BrokerHealth("ok", checks, state))
    return json_response(bodies.BrokerHealth("unavailable", checks, state), 503)


ROUTES = (
    Route(health.LIVE, live),
    Route(health.READY, ready),
    Route(health.STARTUP, startup),
    Route(health.VERSION, version),
)
