"""A request that may have been carried out is never reported as not sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.http_client import Client
from raftlog.client.environment import Environment
from raftlog.client.session import Session
from raftlog.errors import ConnectionLost, NotSent
from tests.helpers.async_tests import in_virtual_time

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class LosesWrites:
    """Answers GET. Takes one write, ends its connection without a response, and listens no more."""

    def __init__(self) -> None:
        self.writes = 0
        self.url = ""
        self._server: asyncio.Server | None = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[LosesWrites]:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._server is not None
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                writer.write(OK)
                continue
            self.writes += 1
            self._server.close()
            writer.close()
            return


# requirement: C2
@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
@in_virtual_time
async def test_the_client_reports_a_write_on_a_connection_that_ended_as_lost(method: str) -> None:
    async with LosesWrites().serving() as broker:
        session = Session([broker.url], environment=Environment(), request_timeout_s=10, retry_timeout_s=30)
        await session.open()
        try:
            await session.ask("GET", f"{broker.url}/v1/cluster")
            with pytest.raises(ConnectionLost):
                await session.ask(method, f"{broker.url}/v1/groups/g/offsets", body=b"{}")
            assert broker.writes == 1
            with pytest.raises(NotSent):
                await session.ask(method, f"{broker.url}/v1/groups/g/offsets", body=b"{}")
        finally:
            await session.close()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST"])
@in_virtual_time
async def test_the_harness_reports_a_write_on_a_connection_that_ended_as_lost(method: str) -> None:
    async with (
        LosesWrites().serving() as broker,
        Client([broker.url], "t", random.Random(1)) as client,
    ):
        await client.call("GET", "/v1/cluster", None, {})
        with pytest.raises(ConnectionLost):
            await client.call(method, "/v1/groups/g/offsets", b"{}", {})
        assert broker.writes == 1
        with pytest.raises(NotSent):
            await client.call(method, "/v1/groups/g/offsets", b"{}", {})
