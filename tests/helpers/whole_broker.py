"""A whole broker in the process of the test, and a proxy that loses answers.

The disk of the broker is in memory by default. The broker advertises the address of the proxy, so every
request of a client passes it.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from api.app import RequestPipeline
from api.http.access import ALL
from broker.archived_reads import Archive
from broker.broker import Broker, BrokerEnvironment
from broker.listeners.listener import Listener
from broker.serving import services_of
from broker.settings import (
    ArchiveSettings,
    BrokerSettings,
    Groups,
    HttpSettings,
    Limits,
    Peer,
    Timing,
    TransactionSettings,
)
from raftlog.aio import Client
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import NodeId
from tests.helpers.http_server import http_listener
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import clock_of_loop
from tests.helpers.waiting import limited

TOPIC: Final = "orders"
TIMING: Final = Timing(tick_ms=5)


class Trouble(Enum):
    """What happens to a request."""

    LOST = auto()  # the broker never sees it
    UNANSWERED = auto()  # it is carried out, and the answer is lost
    HELD = auto()  # it is carried out and answered after ``release``, also if its client has gone
    DELAYED = auto()  # it is carried out after ``release``, although its client has gone


@dataclass
class WholeBroker:
    """``troubles`` are of the next requests whose method and path have a part, in this order."""

    url: str
    broker: Broker
    request_pipeline: RequestPipeline
    listener: Listener
    troubles: list[tuple[str, Trouble]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)  # method and path
    release: asyncio.Event = field(default_factory=asyncio.Event)
    delayed: list[asyncio.Task[aiohttp.ClientResponse]] = field(default_factory=list)
    is_down: bool = False

    def trouble(self, part: str, *troubles: Trouble) -> None:
        """Of the next requests whose method and path, as in ``GET /v1/topics``, contain ``part``."""
        self.troubles += [(part, each) for each in troubles]

    def counted(self, part: str) -> int:
        """Requests whose path contains ``part``."""
        return sum(part in one for one in self.requests)

    def next_trouble(self, request: str) -> Trouble | None:
        """The first one that is for this method and path; it happens once."""
        if self.is_down:
            return Trouble.LOST
        for at, (part, trouble) in enumerate(self.troubles):
            if part in request:
                del self.troubles[at]
                return trouble
        return None


@asynccontextmanager
async def whole_broker(
    partitions: int = 2,
    advertised: str | None = None,
    directory: Path | None = None,
    archive: Archive | None = None,
    timing: Timing = TIMING,
) -> AsyncIterator[WholeBroker]:
    """A broker that has the topic ``orders``, for the time of the block.

    It advertises the ``url`` of its proxy unless another address is given. With a ``directory``
    its files are real.
    """
    app = web.Application(client_max_size=64 << 20)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        found: list[WholeBroker] = []
        ports: list[int] = []

        async def forward(request: web.Request) -> web.StreamResponse:
            return await _forward(found[0], session, f"http://127.0.0.1:{ports[0]}", request)

        app.router.add_route("*", "/{path:.*}", forward)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        broker = _broker(advertised or url, directory, timing)
        await broker.start()
        services = services_of(broker, random.Random(3), archive)
        request_pipeline = RequestPipeline(services)
        listener = http_listener(request_pipeline)
        found.append(WholeBroker(url, broker, request_pipeline, listener))
        await listener.start("127.0.0.1", 0)
        ports.append(listener.port)
        try:
            body = {"name": TOPIC, "partitions": partitions, "replication_factor": 1}
            async with limited("the registration of the broker"):
                while (await session.post(f"{url}/v1/topics", json=body)).status != 201:
                    await asyncio.sleep(0.01)  # the broker is not registered yet
            yield found[0]
        finally:
            for task in found[0].delayed:
                task.cancel()
            await runner.cleanup()
            await listener.stop()
            await services.archive.stop()
            await broker.stop()


async def send_numbers(client: Client, count: int) -> None:
    """Send numbered records to partition 0 of ``orders``."""
    async with client.producer(TOPIC) as producer:
        for number in range(count):
            await producer.send(str(number), partition=0)


@contextmanager
def ended_by(*kinds: type[BaseException]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """A transaction whose block raises one of these."""
    with pytest.raises(kinds) as caught:
        yield caught


async def _forward(
    whole: WholeBroker, session: aiohttp.ClientSession, base: str, request: web.Request
) -> web.StreamResponse:
    body = await request.read()
    trouble = whole.next_trouble(f"{request.method} {request.path}")
    whole.requests.append(f"{request.method} {request.path}")
    sent = {name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")}
    if trouble is Trouble.LOST:
        return _dropped(request)

    async def carried_out() -> aiohttp.ClientResponse:
        if trouble in (Trouble.DELAYED, Trouble.HELD):
            await whole.release.wait()
        return await session.request(
            request.method,
            base + request.raw_path,
            data=io.BytesIO(body) if body else None,
            headers=sent,
            allow_redirects=False,
        )

    if trouble is Trouble.DELAYED:
        whole.delayed.append(asyncio.create_task(carried_out()))
        return _dropped(request)
    async with await carried_out() as answer:
        data = await answer.read()
    if trouble is Trouble.UNANSWERED:
        return _dropped(request)
    kept = {name: value for name, value in answer.headers.items() if name not in _OF_THE_HOP}
    return web.Response(status=answer.status, body=data, headers=kept)


_OF_THE_HOP: Final = ("Content-Length", "Transfer-Encoding", "Connection", "Date", "Server")


def _dropped(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def _broker(url: str, directory: Path | None, timing: Timing) -> Broker:
    settings = BrokerSettings(
        broker_id=1,
        cluster_id="c" * 32,
        secret_file=Path("secret"),
        data_directory=Path("/data"),
        peers={1: Peer(port=9001)},
        limits=Limits(disk_reserve_bytes=0),
        groups=Groups(partitions=1),
        transactions=TransactionSettings(partitions=1),
        http=HttpSettings(allowed_hosts=(ALL,)),
        timing=timing,
        archive=ArchiveSettings(readers_max=1, deadline_ms=300),
    )
    network = LoopNetwork(random.Random(1))
    environment = BrokerEnvironment(
        filesystem=FakeFilesystem() if directory is None else OsFilesystem(),
        clock=clock_of_loop(),
        transport=network.member(NodeId(1), [NodeId(1)]),
        secret=b"of a cluster for tests, 32 bytes",
        rng=random.Random(1),
        run_syncs=in_a_task(_run_syncs),
        on_fatal=_fail,
        on_older_copy=_begin_again,
    )
    return Broker(settings, environment, "/data" if directory is None else str(directory), url)


async def _run_syncs(syncs: Sequence[DiskWork]) -> list[OSError | None]:
    for sync in syncs:
        sync.run()
    return [None for _ in syncs]


def _fail(error: BaseException) -> None:
    raise error


def _begin_again() -> None:
    raise AssertionError("no peer has another disk")
