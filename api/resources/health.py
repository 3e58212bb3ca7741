"""Is it alive, may it be sent requests, has it started; and which version it is."""

from __future__ import annotations

from aiohttp import web

from api.http.routes import Answer, Call, Route, json_answer, json_response
from api.http.services import Checks
from raftlog.wire import bodies, media_types, paths


async def live(call: Call) -> web.StreamResponse:
    """Whether the process works."""
    return _answer(call.services.health.live)


async def ready(call: Call) -> web.StreamResponse:
    """Whether the broker may be sent requests."""
    return _answer(call.services.health.ready)


async def startup(call: Call) -> web.StreamResponse:
    """Whether the broker has started."""
    return _answer(call.services.health.startup)


async def version(call: Call) -> web.StreamResponse:
    """What is running."""
    return json_response(bodies.VersionBody(call.services.version))


def _answer(probe: Checks) -> web.Response:
    checks = dict(probe())
    if all(checks.values()):
        return json_response(bodies.HealthBody("ok", checks))
    return json_response(bodies.HealthBody("unavailable", checks), 503)


_ANSWERS = {
    200: json_answer("every check holds", bodies.HealthBody),
    503: Answer("a check does not hold", {media_types.JSON: bodies.HealthBody}),
}

ROUTES = (
    Route("GET", paths.LIVE, live, "Is the process alive", "Restart it when not.", answers=_ANSWERS),
    Route(
        "GET",
        paths.READY,
        ready,
        "May requests be sent here",
        "Send them elsewhere when not.",
        answers=_ANSWERS,
    ),
    Route("GET", paths.STARTUP, startup, "Has the broker started", "Wait when not.", answers=_ANSWERS),
    Route(
        "GET",
        paths.VERSION,
        version,
        "What is running",
        answers={200: json_answer("the version", bodies.VersionBody)},
    ),
)
