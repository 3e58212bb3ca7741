"""The HTTP application: every route bound to the services, behind one boundary.

Decides: what every answer carries (a request id, the metadata version, the leader), and that every error
leaves as a problem and no traceback leaves at all. Leaves to others: sockets and settings (``server``).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import hdrs, web

from api import (
    cluster,
    documentation,
    errors,
    fetch,
    health,
    metrics,
    offsets,
    partition_admin,
    produce,
    topics,
)
from api.admission import Admission
from api.errors import NotAcceptable, problem_response
from api.gathering import Gatherer
from api.hang_ups import HangUps, has_client
from api.metrics import HttpMetrics
from api.parameters import accepted, query_of
from api.path_table import PathTable
from api.plain_requests import Handle
from api.requests import Request
from api.routes import CONFIRM_MS, Call, Route
from api.services import Services
from raftlog.errors import InvalidRequest, RaftlogError, RecordTooLarge

ROUTES: tuple[Route, ...] = (
    *produce.ROUTES,
    *fetch.ROUTES,
    *topics.ROUTES,
    *partition_admin.ROUTES,
    *offsets.ROUTES,
    *cluster.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
)
"""Everything that is served, but for the two pages that describe it. Paths are tried in this order."""

_LOG = logging.getLogger("raftlog.api")


def create_app(services: Services) -> web.Application:
    """The application. ``listener`` serves it; any other server of aiohttp could."""
    boundary = Boundary(services)
    app = web.Application(
        client_max_size=services.limits.body_bytes_max + 1, middlewares=[boundary.middleware]
    )
    app[BOUNDARY] = boundary
    table = (*ROUTES, *documentation.routes(ROUTES, services.version))
    paths = list(dict.fromkeys(route.path for route in table))  # the methods of a path side by side
    for route in sorted(table, key=lambda route: paths.index(route.path)):
        handler = boundary.bound(route)
        app.router.add_route(route.method, route.path, handler, expect_handler=boundary.ask_for_body)

    async def end_parked(_: web.Application) -> None:
        boundary.hang_ups.close()

    app.on_shutdown.append(end_parked)
    return app


class Boundary:
    """Between aiohttp and the handlers: one for each application."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.admission = Admission(services.limits)
        self.hang_ups = HangUps()
        self._gatherer = Gatherer(services.gateway, services.rng, services.limits.produce_timeout_ms_default)
        self.metrics = HttpMetrics(services, self.admission, self.hang_ups)
        self._life = f"{services.rng.getrandbits(48):012x}"
        self._numbers = itertools.count(1)
        self._monotonic = services.clock.monotonic
        self._paths = PathTable()

    def bound(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The route's handler as aiohttp calls it; ``find`` finds it from now on."""
        known = route.query_names
        offered = route.media_types
        handler = route.handler

        async def handle(call: Call) -> web.StreamResponse:
            request = call.request
            call.route = route.path
            call.query = query_of(request, known)
            wanted = accepted(request, offered)
            if wanted is None:
                raise NotAcceptable(
                    f"Accept asks for nothing that is here; ask for {' or '.join(offered)}",
                    supported=list(offered),
                )
            call.media_type = wanted
            await self._hear_of_topic(request.match_info.get("topic"))
            return await handler(call)

        async def for_aiohttp(request: web.Request) -> web.StreamResponse:
            return await handle(request[_CALL])

        self._paths.add(route.method, route.path, partial(self._answer, handle))
        return for_aiohttp

    def find(self, method: str, path: str) -> tuple[Handle, Mapping[str, str]] | None:
        """Who answers a plain request, and the parameters of its path; None when aiohttp is to refuse it."""
        return self._paths.find(method, path)

    @web.middleware
    async def middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """The same way for what aiohttp has read, routes that are not there included."""

        async def handle(call: Call) -> web.StreamResponse:
            request[_CALL] = call
            return await handler(request)

        return await self._answer(handle, request)

    async def _answer(
        self, handle: Callable[[Call], Awaitable[web.StreamResponse]], request: Request
    ) -> web.StreamResponse:
        """Give the request its ``Call``, its answer the common headers, and its errors their form."""
        began = self._monotonic()
        call = Call(
            request,
            self.services,
            self.admission,
            self.hang_ups,
            self._gatherer,
            f"{self._life}-{next(self._numbers):x}",
        )
        try:
            response = await handle(call)
        except Exception as error:
            response = self._answer_to(error, call)
        if not response.prepared:
            call.stamp(response)
        self.metrics.answered(_method(request), call.route, response.status, self._monotonic() - began)
        return response

    async def _hear_of_topic(self, name: str | None) -> None:
        """Before a topic is denied, ask the controller: a broker that starts has not heard of all yet."""
        if name is not None and name not in self.services.controller.image.topics:
            await self.services.controller.current_image(CONFIRM_MS)

    async def ask_for_body(self, request: web.Request) -> None:
        """Answer ``Expect: 100-continue``, unless the body announced will be refused: then say so only."""
        announced = request.content_length or 0
        wanted = announced <= self.services.limits.body_bytes_max
        if wanted and request.headers[hdrs.EXPECT].lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer proper has not begun

    def _answer_to(self, error: Exception, call: Call) -> web.Response:
        if isinstance(error, ConnectionError) and not has_client(call.request):
            return web.Response(status=CLIENT_GONE)  # for the metrics; nobody is there to read it
        described = self._described(error, call)
        return problem_response(described, instance=call.request.path[:300], request_id=call.request_id)

    def _described(self, error: Exception, call: Call) -> RaftlogError:
        if isinstance(error, RaftlogError):
            if type(error) is RaftlogError:
                _LOG.error("request %s: %s", call.request_id, error)
            return error
        if isinstance(error, web.HTTPException):
            return _routing_error(error, call)
        _LOG.exception("request %s failed: %s %s", call.request_id, call.request.method, call.route)
        return RaftlogError(f"an internal error; the broker's log has it under {call.request_id}")


CLIENT_GONE = 499
_CALL = web.RequestKey("call", Call)
BOUNDARY = web.AppKey("boundary", Boundary)
_METHODS = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))


def _method(request: Request) -> str:
    """The method as a metric's label, of which clients must not make new ones."""
    return request.method if request.method in _METHODS else "other"


def _routing_error(error: web.HTTPException, call: Call) -> RaftlogError:
    path = call.request.path[:200]
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = sorted(error.allowed_methods)
        return errors.MethodNotAllowed(f"{path} has {', '.join(allowed)}", allowed=allowed)
    if isinstance(error, web.HTTPNotFound):
        return errors.PathNotFound(f"there is nothing at {path}; /docs lists all paths")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return RecordTooLarge(f"the body is too large: {error.text}")
    return InvalidRequest(f"the request is refused: {error.reason}")
