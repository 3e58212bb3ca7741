"""How descriptors and the disk are shared out, and what becomes of HTTP connections beyond their share."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import api
from api.app import RequestPipeline
from api.connections.connection_limit import ANSWERED_AT_ONCE_MAX, ConnectionLimit
from api.connections.listener import HttpListener
from broker.process.descriptors import shares
from broker.process.disk_reserve import LOOK_EVERY_S, DiskReserve
from raftlog.errors import Overloaded, QuotaExceeded
from raftlog.testing.fake_filesystem import FakeFilesystem
from tests.helpers.http_server import fake_cluster
from tests.helpers.manual_wall_clock import ManualWallClock

GET = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n"
NOT_PLAIN = b"TE: trailers\r\n"  # sends a connection the long way, through aiohttp
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.mark.parametrize(
    ("limit", "asked", "connections", "held"),
    [
        (256, None, 128, 64),
        (1024, None, 512, 256),
        (1024, 100, 100, 462),
        (1024, 4000, 512, 256),
        (1 << 20, None, 25_000, 65_536),
        (1 << 20, 50_000, 50_000, 65_536),
        (resource.RLIM_INFINITY, None, 25_000, 65_536),
    ],
)
def test_shares(limit: int, asked: int | None, connections: int, held: int) -> None:
    found = shares(limit, asked)
    assert (found.connections_max, found.held_files_max) == (connections, held)
    assert found.connections_max + found.held_files_max < found.limit


def test_setting_that_does_not_fit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    shares(1024, 4000)
    assert "limits.connections_max is 4000" in caplog.text
    assert "ulimit -n" in caplog.text


@asynccontextmanager
async def listening(
    connections_max: int, client_max: int | None = None
) -> AsyncIterator[tuple[HttpListener, AsyncExitStack]]:
    """A listener, and what is closed before it."""
    request_pipeline = RequestPipeline(fake_cluster(None, 3).services)
    listener = HttpListener(
        request_pipeline,
        shutdown_timeout_s=1.0,
        connections_max=connections_max,
        connections_client_max=client_max or connections_max,
    )
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        stack.push_async_callback(listener.stop)
        yield listener, stack


async def connect(listener: HttpListener, stack: AsyncExitStack) -> Connection:
    """A connection that is closed after the scenario."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    stack.callback(writer.close)
    return reader, writer


async def ask(connection: Connection, more: bytes = b"") -> bytes:
    """One request, and what came back first."""
    reader, writer = connection
    writer.write(GET + more + b"\r\n")
    return await reader.read(65536)


async def test_connection_beyond_the_limit_is_answered_and_closed() -> None:
    async with listening(2) as (listener, stack):
        plain, long = await connect(listener, stack), await connect(listener, stack)
        assert (await ask(plain)).startswith(b"HTTP/1.1 200")
        assert (await ask(long, NOT_PLAIN)).startswith(b"HTTP/1.1 200")
        third = await connect(listener, stack)
        refusal = await ask(third)
        assert refusal.startswith(b"HTTP/1.1 503")
        assert b"Connection: close" in refusal
        assert b"Retry-After: 1" in refusal
        assert b'"code":"overloaded"' in refusal
        assert b"limits.connections_max" in refusal
        assert await third[0].read() == b""
        assert (await ask(plain)).startswith(b"HTTP/1.1 200")
        assert (await ask(long, NOT_PLAIN)).startswith(b"HTTP/1.1 200")
        long[1].close()
        while True:
            if (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200"):
                return


async def test_one_address_has_a_share_of_the_connections() -> None:
    # requirement: N2
    async with listening(6, client_max=2) as (listener, stack):
        plain, long = await connect(listener, stack), await connect(listener, stack)
        assert (await ask(plain)).startswith(b"HTTP/1.1 200")
        assert (await ask(long, NOT_PLAIN)).startswith(b"HTTP/1.1 200")  # counted once, by either reader
        refusal = await ask(await connect(listener, stack))
        assert refusal.startswith(b"HTTP/1.1 429")
        assert b"Retry-After: 1" in refusal
        assert b"limits.connections_client_max" in refusal
        long[1].close()
        while True:
            if (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200"):
                return


async def test_an_address_leaves_connections_to_others() -> None:
    limit = ConnectionLimit(6, 2, RequestPipeline(fake_cluster(None, 1).services).metrics)
    for _ in range(2):
        limit.opened("10.0.0.1")
    assert isinstance(limit.refusal("10.0.0.1"), QuotaExceeded)
    assert limit.refusal("10.0.0.2") is None
    limit.closed("10.0.0.1")
    assert limit.refusal("10.0.0.1") is None
    for _ in range(5):
        limit.opened("10.0.0.3")
    assert isinstance(limit.refusal("10.0.0.2"), Overloaded)


# requirement: N2
async def test_addresses_of_an_ipv6_network_share_their_connections() -> None:
    limit = ConnectionLimit(6, 2, RequestPipeline(fake_cluster(None, 1).services).metrics)
    for address in ("2001:db8::1", "2001:db8::2"):
        limit.opened(address)
    assert isinstance(limit.refusal("2001:db8::3"), QuotaExceeded)
    assert limit.refusal("2001:db8:0:1::1") is None
    limit.closed("2001:db8::1")
    assert limit.refusal("2001:db8::3") is None


# requirement: N2
def test_only_members_that_join_are_known_by_their_whole_address() -> None:
    """All else takes ``client_of``: a share by whole addresses would be none."""
    sources = [(path, path.read_text()) for path in Path(api.__file__).parent.rglob("*.py")]
    whole = sorted(path.name for path, source in sources for _ in range(source.count("request.remote or")))
    assert whole == ["group_members.py", "group_poll.py", "requests.py"]


async def test_the_share_of_an_address_is_a_quarter() -> None:
    listener = HttpListener(RequestPipeline(fake_cluster(None, 3).services), connections_max=8)
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        stack.push_async_callback(listener.stop)
        answers = [await ask(await connect(listener, stack)) for _ in range(3)]
    assert [answer.split()[1] for answer in answers] == [b"200", b"200", b"429"]


async def test_few_connections_beyond_the_limit_are_kept_for_an_answer() -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        silent = [await connect(listener, stack) for _ in range(ANSWERED_AT_ONCE_MAX)]
        newest = await connect(listener, stack)
        with contextlib.suppress(ConnectionResetError):
            assert await silent[0][0].read() == b""  # while all others are kept
        assert (await ask(newest)).startswith(b"HTTP/1.1 503")
        for reader, _ in silent[1:]:  # the deadline ends those that ask nothing
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""


async def test_a_flood_of_silent_connections_does_not_hide_health() -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            for _ in range(2 * ANSWERED_AT_ONCE_MAX):
                await connect(listener, stack)
            reader, writer = await connect(listener, stack)
            writer.write(b"GET /healthz/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200")


async def test_health_and_metrics_are_served_beyond_the_limit() -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        for path in (b"/healthz/live", b"/healthz/ready", b"/metrics"):
            reader, writer = await connect(listener, stack)
            writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            assert (await reader.read(65536)).startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionResetError):  # and the deadline ends the connection
                while await reader.read(65536):
                    pass


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200));"
        "from broker.process.descriptors import raise_limit;"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "200 (200, 200)\n"


async def test_refusals_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(1) as (listener, stack):
        assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 200")
        for _ in range(5):
            assert (await ask(await connect(listener, stack))).startswith(b"HTTP/1.1 503")
    assert caplog.text.count("limits.connections_max") == 1


def disk(capacity_bytes: int) -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.capacity_bytes = capacity_bytes
    return filesystem


def test_the_room_left_is_known_although_nobody_has_asked_to_write() -> None:
    assert DiskReserve(disk(1000), "/data", 0, ManualWallClock()).free_bytes == 1000


def test_there_is_room_until_only_the_reserve_is_left() -> None:
    assert DiskReserve(disk(1001), "/data", 1000, ManualWallClock()).has_room()
    assert not DiskReserve(disk(1000), "/data", 1000, ManualWallClock()).has_room()


def test_half_of_the_reserve_is_left_to_deletions() -> None:
    for free_bytes, is_left in ((501, True), (500, False)):
        reserve = DiskReserve(disk(free_bytes), "/data", 1000, ManualWallClock())
        assert not reserve.has_reserve(), "nobody has looked yet"
        reserve.has_room()
        assert reserve.has_reserve() is is_left


def test_the_disk_is_looked_at_now_and_then() -> None:
    filesystem, clock = disk(1000), ManualWallClock()
    reserve = DiskReserve(filesystem, "/data", 0, clock)
    assert reserve.has_room()
    filesystem.capacity_bytes = 0
    assert reserve.has_room()  # not looked at again yet
    clock.now_ms += int(LOOK_EVERY_S * 1000)
    assert not reserve.has_room()
    assert reserve.free_bytes == 0


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO, errno.ESTALE])
def test_a_disk_that_cannot_be_asked_has_no_room(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is no longer mounted, for instance: its broker hands its leaderships over."""

    class Gone(FakeFilesystem):
        def free_bytes(self, path: str) -> int:
            raise OSError(number, os.strerror(number), path)

    clock = ManualWallClock()
    reserve = DiskReserve(Gone(), "/data", 0, clock)
    for _ in range(20):
        assert not reserve.has_room()
        clock.now_ms += int(LOOK_EVERY_S * 1000)
    assert caplog.text.count(os.strerror(number)) == 1
