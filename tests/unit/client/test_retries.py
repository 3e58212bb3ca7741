"""How long a client waits before it tries again, and what it never reports as not sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.http_client import Client
from raftlog.client.environment import Environment
from raftlog.client.retries import ASKED_MAX_S, ELECTION_ATTEMPTS, ELECTION_MAX_S, FIRST_S, MAX_S, pause_s
from raftlog.client.session import Session
from raftlog.errors import (
    ConnectionLost,
    NoLeader,
    NotLeader,
    NotSent,
    Overloaded,
    QuotaExceeded,
    RaftlogError,
)


def longest(error: RaftlogError, attempts: int) -> float:
    rng = random.Random(1)
    return max(pause_s(error, attempts, rng) for _ in range(1_000))


def test_pauses_are_drawn_below_a_bound_that_doubles() -> None:
    rng = random.Random(1)
    for attempts in range(1, 20):
        bound = min(MAX_S, FIRST_S * 2**attempts)
        pauses = [pause_s(ConnectionLost(), attempts, rng) for _ in range(200)]
        assert 0 <= min(pauses) < bound / 4
        assert bound * 3 / 4 < max(pauses) <= bound
    assert pause_s(None, 1, rng) == 0


# requirement: ST5
def test_an_election_is_looked_at_often_but_not_for_ever() -> None:
    for attempts in range(1, ELECTION_ATTEMPTS + 1):
        assert longest(NoLeader(), attempts) <= ELECTION_MAX_S
    assert longest(NoLeader(), ELECTION_ATTEMPTS + 1) > 5 * ELECTION_MAX_S


def test_a_leader_that_is_named_is_asked_at_once() -> None:
    named = NotLeader(leader_http="http://127.0.0.1:1")
    assert (longest(named, 1), longest(named, 2)) == (0.0, 0.0)
    assert longest(named, 3) > 0.0


def test_a_broker_says_when_to_return() -> None:
    assert 0.2 <= pause_s(Overloaded(retry_after_ms=200), 1, random.Random(1)) <= 0.3


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


@pytest.mark.parametrize("kind", [Overloaded, QuotaExceeded])
def test_a_broker_says_how_long_up_to_a_minute(kind: type[RaftlogError]) -> None:
    rng = random.Random(1)
    assert 2.0 <= pause_s(kind("full", retry_after_ms=2_000), 1, rng) <= 3.0
    assert ASKED_MAX_S <= pause_s(kind("full", retry_after_ms=3_600_000), 1, rng) <= 1.5 * ASKED_MAX_S
