"""The simulated TCP, the wire that is judged, and runs with clients over HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from tests.helpers.loop_watcher import Nobody
from verification.simulator.event_loop import Process, SimulatedLoop
from verification.simulator.levels import Seed
from verification.simulator.scenarios.http import SCENARIO
from verification.simulator.scenarios.http.odds import CALM_STREAMS, RAW_KINDS, HttpOdds
from verification.simulator.scenarios.http.streams import StreamNetwork
from verification.simulator.scenarios.http.transport import StreamTransport
from verification.simulator.scenarios.http.wire import Exchange, Wire

ROUGH = replace(CALM_STREAMS, jitter_s=0.2, cut_odds=0.8, window_bytes=100)


class Program(asyncio.Protocol):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.got = b""
        self.told: list[object] = []
        self.transport: StreamTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, StreamTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> bool:
        self.told.append("end")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append(type(exc))

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


class Pair:
    """A client and a server, joined."""

    def __init__(self, odds: object = CALM_STREAMS) -> None:
        assert isinstance(odds, type(CALM_STREAMS))
        self.loop = SimulatedLoop(Nobody(), lambda process: 0.0)
        self.network = StreamNetwork(self.loop, random.Random("streams"), odds)
        self.near, self.far = Process("near"), Process("far")
        self.client, self.server = Program(), Program()
        self.network.listen("b1", self.far, lambda: self.server)

    def run(self, story: Coroutine[object, object, None]) -> None:
        """Within simulated time."""
        self.loop.run(story, 100.0)
        self.loop.close()

    async def dial(self) -> tuple[StreamTransport, StreamTransport]:
        """Both ends."""
        await self.network.connect(self.near, "b1", lambda: self.client)
        assert self.client.transport is not None
        assert self.server.transport is not None
        return self.client.transport, self.server.transport


def test_bytes_arrive_whole_and_in_order_however_they_are_cut() -> None:
    pair = Pair(ROUGH)
    sent = random.Random("bytes").randbytes(5000)

    async def story() -> None:
        near, _ = await pair.dial()
        for start in range(0, len(sent), 700):
            near.write(sent[start : start + 700])
        near.close()
        await asyncio.sleep(50)

    pair.run(story())
    assert pair.server.got == sent
    assert pair.server.told == ["end", type(None)]
    assert pair.client.told == [type(None)]


def test_a_slow_reader_stops_the_writer_until_it_reads_on() -> None:
    pair = Pair(replace(CALM_STREAMS, window_bytes=1000))

    async def story() -> None:
        near, far = await pair.dial()
        far.pause_reading()
        near.write(bytes(100_000))
        await asyncio.sleep(1)
        assert (pair.client.told, near.get_write_buffer_size()) == (["pause"], 99_000)
        far.resume_reading()
        await asyncio.sleep(10)
        assert (pair.client.told, len(pair.server.got)) == (["pause", "resume"], 100_000)

    pair.run(story())


@pytest.mark.parametrize("silently", [False, True])
def test_a_kill_resets_connections_and_a_power_loss_leaves_them_silent(silently: bool) -> None:
    pair = Pair()

    async def story() -> None:
        near, _ = await pair.dial()
        pair.loop.kill(pair.far)
        pair.network.process_ended("b1", pair.far, silently=silently)
        near.write(b"is anybody there?")
        await asyncio.sleep(5)
        assert pair.client.told == ([] if silently else [ConnectionResetError])
        pair.network.powered("b1")
        near.write(b"and now?")
        await asyncio.sleep(1)
        assert pair.client.told == [ConnectionResetError]
        with pytest.raises(ConnectionRefusedError):
            await pair.network.connect(pair.near, "b1", Program)

    pair.run(story())


def test_a_silent_host_holds_everything_back_for_a_while() -> None:
    pair = Pair()

    async def story() -> None:
        near, _ = await pair.dial()
        pair.network.silence("b1", 3.0)
        near.write(b"late")
        await asyncio.sleep(2.9)
        assert pair.server.got == b""
        await asyncio.sleep(0.2)
        assert pair.server.got == b"late"

    pair.run(story())


def test_the_wire_pairs_requests_and_answers_from_the_bytes() -> None:
    seen: list[Exchange] = []
    events: list[bytes] = []
    wrong: list[str] = []
    wire = Wire(
        lambda: 0.0,
        asked=lambda exchange: None,
        answered=seen.append,
        event=lambda exchange, event: events.append(event),
        malformed=wrong.append,
    )
    post = b"POST /v1/a%2Fb?x=1&y=%20 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
    get = b"GET /s HTTP/1.1\r\nHost: h\r\n\r\n"
    for byte in post + get + get:
        wire.received(bytes([byte]))
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\n\r\nokHTTP/1.1 204 No Content\r\n\r\n":
        wire.sent(bytes([byte]))
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.sent(stream + b"9\r\nid: 1\n\nid\r\n" + b"5\r\n: 2\n\n\r\n0\r\n\r\n")
    first, second, third = seen
    assert (first.method, first.path, dict(first.query), first.body) == (
        "POST",
        "/v1/a/b",
        {"x": "1", "y": " "},
        b"abc",
    )
    assert (first.status, first.answer, first.answer_headers["x-a"]) == (200, b"ok", "b")
    assert (second.status, third.status, events, wrong) == (204, 200, [b"id: 1", b"id: 2"], [])
    wire.sent(b"HTTP/1.1 200 OK\r\n\r\n")
    assert len(wrong) == 1


def test_every_kind_of_client_over_http_is_drawn() -> None:
    drawn = [SCENARIO.drawn(random.Random(f"{seed} odds")).of(HttpOdds) for seed in range(60)]
    assert {kind for odds in drawn if odds is not None for kind in odds.raw} == set(RAW_KINDS)


def test_clients_over_http_are_told_the_truth() -> None:
    # requirement: L9
    assert Seed.named("http:1").run().violations == ()


@pytest.mark.parametrize("seed", range(5))
def test_pieces_that_are_due_at_the_same_time_arrive_in_their_order(seed: int) -> None:
    """Rounding of ``now + (due - now)`` must not decide which of the pieces behind a late one is first."""
    pair = Pair(CALM_STREAMS)
    rng = random.Random(seed)
    sent = rng.randbytes(200)

    async def story() -> None:
        near, _ = await pair.dial()
        pair.network.silence("b1", 1.0 + rng.random())
        for at in range(len(sent)):
            near.write(sent[at : at + 1])
            await asyncio.sleep(0.002 * rng.random())
        await asyncio.sleep(5)

    pair.run(story())
    assert pair.server.got == sent
