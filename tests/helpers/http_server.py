"""The HTTP application on a real socket of this machine, for tests."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import ParamSpec

import aiohttp
import msgspec

from api.app import RequestPipeline
from api.connections.http_connections import HttpConnections
from broker.listeners.connection_limit import ConnectionLimit
from broker.listeners.listener import Listener
from broker.ports import Limits
from broker.process.descriptors import CONNECTIONS_MAX
from raftlog.wire import headers
from tests.helpers.async_tests import Decorator, in_virtual_time_with
from tests.helpers.fake_services import FakeCluster, fake_cluster
from tests.helpers.virtual_time import clock_of_loop
from tests.helpers.waiting import limited

Json = dict[str, object]
Arguments = ParamSpec("Arguments")


@dataclass(slots=True)
class Reply:
    """One response: the status, the headers, and the body as bytes and as JSON."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as an object."""
        return msgspec.json.decode(self.body, type=Json)

    @property
    def code(self) -> object:
        """The code of a problem, which must look like one."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status
        assert isinstance(problem["retryable"], bool)
        assert problem["detail"]
        assert problem["request_id"] == self.headers[headers.REQUEST_ID.lower()]
        return problem["code"]


@dataclass(slots=True)
class HttpServer:
    """A served application and a client of it."""

    cluster: FakeCluster
    session: aiohttp.ClientSession
    request_pipeline: RequestPipeline
    port: int

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def call(
        self, method: str, path: str, body: object = None, sent: dict[str, str] | None = None
    ) -> Reply:
        """One request; anything but bytes goes as JSON."""
        all_headers = dict(sent or {})
        if body is not None and not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            all_headers.setdefault("Content-Type", "application/json")
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) >= 1 << 20 else body
        async with self.session.request(
            method, self.url + path, data=data, headers=all_headers, allow_redirects=False
        ) as answer:
            named = {name.lower(): value for name, value in answer.headers.items()}
            return Reply(answer.status, named, await answer.read())

    async def get(self, path: str, **sent: str) -> Reply:
        """A GET; headers are named with underscores."""
        return await self.call(
            "GET", path, sent={name.replace("_", "-"): value for name, value in sent.items()}
        )

    async def post(self, path: str, body: object = None, **sent: str) -> Reply:
        """A POST; headers are named with underscores."""
        return await self.call(
            "POST", path, body, sent={name.replace("_", "-"): value for name, value in sent.items()}
        )

    async def topic(self, name: str = "orders", partitions: int = 3, **config: int | str) -> Reply:
        """Make a topic; config keys are named with underscores."""
        made = await self.post(
            "/v1/topics",
            {
                "name": name,
                "partitions": partitions,
                "replication_factor": 3,
                "config": {key.replace("_", "."): value for key, value in config.items()},
            },
        )
        assert made.status == 201, made
        return made

    def advertise(self) -> HttpServer:
        """Let the metadata name this address for the broker, so that clients can use it as a leader."""
        controller, here = self.cluster.controller, self.cluster.services.broker_id
        brokers = {**controller.image.brokers}
        brokers[here] = replace(brokers[here], http_url=self.url)
        controller.image = replace(controller.image, brokers=brokers)
        return self

    async def raw(self, request: bytes, *, until_closed: bool = False) -> bytes:
        """Send bytes on a new connection; return the response so far."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            async with limited("an answer"):
                return await (reader.read(-1) if until_closed else reader.read(65536))
        finally:
            writer.close()
            await writer.wait_closed()


def http_listener(
    request_pipeline: RequestPipeline, connections_max: int = CONNECTIONS_MAX, client_max: int | None = None
) -> Listener:
    """A listener that has not started."""
    limit = ConnectionLimit("HTTP", connections_max, client_max, request_pipeline.metrics)
    return Listener(HttpConnections(request_pipeline, limit), limit, shutdown_timeout_s=1.0)


@asynccontextmanager
async def serve(
    limits: Limits | None = None, *, brokers: int = 3, **rules: frozenset[str]
) -> AsyncIterator[HttpServer]:
    """A fresh application. ``rules`` are those of ``Services`` about names and origins."""
    cluster = fake_cluster(limits, brokers, clock_of_loop())
    request_pipeline = RequestPipeline(replace(cluster.services, **rules))  # type: ignore[arg-type]  # of one type each
    listener = http_listener(request_pipeline)
    await listener.start("127.0.0.1", 0)
    connector = aiohttp.TCPConnector(limit=200)
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            yield HttpServer(cluster, session, request_pipeline, listener.port)
    finally:
        await listener.stop()


def served(
    limits: Limits | None = None,
    *,
    partitions: int = 0,
    prepare: Callable[[HttpServer], Awaitable[object]] | None = None,
    brokers: int = 3,
    **rules: frozenset[str],
) -> Decorator[HttpServer]:
    """Run the test in virtual time with a server, its first argument.

    The server has topic ``orders`` if ``partitions`` is given, and what ``prepare`` makes.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[HttpServer]:
        async with serve(limits, brokers=brokers, **rules) as server:
            if partitions:
                await server.topic(partitions=partitions)
            if prepare is not None:
                await prepare(server)
            yield server

    return in_virtual_time_with(opened)
