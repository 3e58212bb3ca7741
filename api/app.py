"""Runs every HTTP route behind one request pipeline.

Decides: the headers of every response (request id, metadata version, leader), and the conversion of every
error into a problem document without a traceback. Leaves to others: sockets and settings (``server``).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from aiohttp import hdrs, web

from api.http.access import Access, is_preflight, preflight
from api.http.batching import RequestBatcher
from api.http.disconnects import DisconnectWatcher, has_client
from api.http.errors import problem_response
from api.http.parameters import accepted, query_of
from api.http.path_table import PathTable
from api.http.requests import Found, RememberedRequest, Request
from api.http.routes import Call, Handler, Route, partition_number
from api.http.shared_reads import EventStreams
from api.resources import (
    cluster,
    dead_letters,
    delays,
    dependents,
    documentation,
    execute,
    fetch,
    group_members,
    group_poll,
    groups,
    health,
    joining,
    metrics,
    offsets,
    partitions,
    plans,
    problem_pages,
    produce,
    queues,
    schedules,
    topics,
    transaction_offsets,
    transactions,
)
from api.resources.metrics import HttpMetrics
from broker.listeners.admission import Admission
from broker.ports import Services
from raftlog import tracing
from raftlog.errors import CommitUnknown, InternalError, NotAcceptable, Overloaded, RaftlogError
from raftlog.exhaustion import RETRY_MS, exhaustion
from raftlog.tracebacks import release
from raftlog.wire import media_types

ROUTES: tuple[Route, ...] = (
    *produce.ROUTES,
    *fetch.ROUTES,
    *topics.ROUTES,
    *dependents.ROUTES,
    *joining.ROUTES,
    *partitions.ROUTES,
    *offsets.ROUTES,
    *groups.ROUTES,
    *group_members.ROUTES,
    *group_poll.ROUTES,
    *dead_letters.ROUTES,
    *queues.ROUTES,
    *delays.ROUTES,
    *schedules.ROUTES,
    *transactions.ROUTES,
    *transaction_offsets.ROUTES,
    *execute.ROUTES,
    *cluster.ROUTES,
    *plans.ROUTES,
    *health.ROUTES,
    *metrics.ROUTES,
    *problem_pages.ROUTES,
)
"""All routes except the routes of the two documents that describe the routes."""

_LOG = logging.getLogger("raftlog.api")


class RequestPipeline:
    """Passes requests from the readers of connections to the handlers. Each listener has one pipeline."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.admission = Admission(services.limits)
        self.disconnect_watcher = DisconnectWatcher()
        self._batcher = RequestBatcher(
            services.gateway, services.rng, services.limits.produce_timeout_ms_default
        )
        self._streams = EventStreams()
        self.metrics = HttpMetrics(services, self.admission, self.disconnect_watcher)
        self._incarnation = f"{services.rng.getrandbits(48):012x}"
        self._numbers = itertools.count(1)
        self._monotonic = services.clock.monotonic
        self._access = Access(services)
        self._is_traced = tracing.is_active()
        self._paths = PathTable((*ROUTES, *documentation.routes(ROUTES, services.version, services.limits)))

    def answer_plain(self, request: RememberedRequest) -> Awaitable[web.StreamResponse]:
        """Return the response to a request of the fast path."""
        return self._answer(request, request.path, request.found, is_plain=True)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response to a request that aiohttp has parsed."""
        if hdrs.EXPECT in request.headers:
            await self._ask_for_body(request)
        return await self._answer(request, request.rel_url.raw_path, {})

    def is_streamed(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """True if the response to this request is sent while it is generated, so that aiohttp must write
        it.
        """
        try:
            route, _ = self._paths.find(method, path)
        except RaftlogError:
            return False
        return route.is_streamed or accepted(headers, route.media_types) == media_types.EVENT_STREAM

    def close(self) -> None:
        """End the waits of requests in progress; later requests do not wait."""
        self.disconnect_watcher.close()

    async def _answer(
        self, request: Request, path: str, found: Found, *, is_plain: bool = False
    ) -> web.StreamResponse:
        """Route a request to its handler; add the common headers to the response, and convert errors to
        problem documents.

        ``path`` is still percent-encoded.
        """
        began = self._monotonic()
        call = self._call(request, found)
        call.is_plain = is_plain
        try:
            call.shared = self._access.admit(request)
            handler = self._handler(call, path)
            if not call.is_path_known:
                await call.hear_of_path()
            response = await handler(call)
        except Exception as error:
            response = self._answer_to(error, call)
            release(error)
        if not response.prepared:
            call.stamp(response)
        method, took_s = _METHODS.get(request.method, _OTHER_METHOD), self._monotonic() - began
        self.metrics.answered(method, call.route, response.status, took_s)
        if self._is_traced and call.route not in _UNTRACED:
            tracing.served(method, call.route, response.status, request.headers, took_s)
        return response

    def refuse(self, request: Request, error: RaftlogError) -> web.Response:
        """Return the response to a request that cannot be parsed; the connection closes after the
        response.
        """
        call = self._call(request, {})
        self.metrics.problem(error.code)
        response = problem_response(error, instance="", request_id=call.request_id)
        response.force_close()
        call.stamp(response)
        self.metrics.answered(_METHODS.get(request.method, _OTHER_METHOD), call.route, response.status, 0.0)
        return response

    def _call(self, request: Request, found: Found) -> Call:
        return Call(
            request,
            self.services,
            self.admission,
            self.disconnect_watcher,
            self._batcher,
            self._streams,
            f"{self._incarnation}-{next(self._numbers):x}",
            found=found,
        )

    def _handler(self, call: Call, path: str) -> Handler:
        """Find the handler of a request and negotiate its response.

        The result is kept for later requests of the connection with an equal head.
        """
        request = call.request
        routed: _Routed | None = call.found.get(RequestPipeline._handler)
        if routed is None:
            if request.method == hdrs.METH_OPTIONS and is_preflight(request, call.shared):
                return partial(_preflight, self._paths.at(path)[0])
            route, call.match_info = self._paths.find(request.method, path)
            call.route = route.path  # set before the handler runs, so that metrics of errors have the route
            routed = _routed(request, route, call.match_info)
            call.found[RequestPipeline._handler] = routed
        call.route, call.match_info, call.partition_number, call.query, call.media_type, handler = routed
        return handler

    async def _ask_for_body(self, request: web.BaseRequest) -> None:
        """Answer ``Expect: 100-continue``, unless the announced body would be refused."""
        announced = request.content_length or 0
        wanted = announced <= self.services.limits.body_bytes_max
        if wanted and request.headers[hdrs.EXPECT].lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = (
                0  # aiohttp must not count these bytes as the start of the final response
            )

    def _answer_to(self, error: Exception, call: Call) -> web.Response:
        if isinstance(error, ConnectionError) and not has_client(call.request):
            return web.Response(
                status=CLIENT_GONE
            )  # counted in the metrics only: the client has disconnected
        described = self._described(error, call)
        self.metrics.problem(described.code)
        return problem_response(described, instance=call.request.path[:300], request_id=call.request_id)

    def _described(self, error: Exception, call: Call) -> RaftlogError:
        if isinstance(error, RaftlogError):
            if type(error) is InternalError:
                _LOG.error("request %s: %s", call.request_id, error)
            return error
        if (lack := exhaustion(error)) is not None:
            if call.request.method in _UNCHANGING:
                told = f"the broker cannot answer the request now: {lack.strerror}; retry"
                return Overloaded(told, retry_after_ms=RETRY_MS)
            return CommitUnknown(
                f"the broker does not know whether it carried out the request: {lack.strerror}"
            )
        _LOG.exception("request %s failed: %s %s", call.request_id, call.request.method, call.route)
        return InternalError(
            f"internal error; the broker's log describes it with the request id {call.request_id}"
        )


class _Routed(NamedTuple):
    """The handler of a request, and the fields of its ``Call`` object."""

    route: str
    match_info: Mapping[str, str]
    partition_number: int | None
    query: Mapping[str, str]
    media_type: str
    handler: Handler


def _routed(request: Request, route: Route, match_info: Mapping[str, str]) -> _Routed:
    """Negotiate the media type of a route's response. Raises ``InvalidRequest`` and ``NotAcceptable``."""
    query = query_of(request, route.query_names, route.list_names)
    wanted = accepted(request.headers, route.media_types)
    if wanted is None and route.negotiated:
        raise NotAcceptable(
            f"Accept has no supported media type; accept {' or '.join(route.media_types)}",
            supported=list(route.media_types),
        )
    return _Routed(
        route.path,
        match_info,
        partition_number(match_info),
        query,
        wanted or route.media_types[0],
        route.handler,
    )


async def _preflight(methods: Iterable[str], call: Call) -> web.StreamResponse:
    return web.Response(status=204, headers=preflight(methods))


CLIENT_GONE = 499
_UNTRACED = frozenset(
    route.path for route in (*health.ROUTES, *metrics.ROUTES)
)  # paths that probes and collectors request continuously
_UNCHANGING = frozenset(("GET", "HEAD"))
_OTHER_METHOD = "other"
_METHODS = {name: name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
"""The label of each HTTP method in metrics; clients must not be able to create new labels."""
