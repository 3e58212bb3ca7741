"""Requests and mutants of them are answered alike by both readers: ours of plain ones, and aiohttp."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from api.app import RequestPipeline
from api.connections.aiohttp_reader import AiohttpServer
from api.connections.fast_path import FastPathServer
from api.connections.http_connections import KEEPALIVE_S
from broker.listeners.connection_limit import ConnectionLimit
from broker.ports import Limits
from tests.helpers.fake_services import fake_cluster
from tests.helpers.http_mutants import LISTED_ORIGIN, mutant
from tests.helpers.virtual_time import VirtualClock
from tests.helpers.wire import Wire

PARTS, MUTANTS_OF_PART, MUTANTS_OF_CLUSTER = 4, 500, 100
LIMITS = Limits(wait_ms_max=100, body_timeout_s=0.5, heartbeat_ms=100)
VARYING = re.compile(rb'(?i)((?:raftlog-request-id|date): )[^\r]+|("request_id":")[^"]+')
FAILED = re.compile(rb'HTTP/1\.. 500|"code":"internal_error"')
VERSION = re.compile(rb"(?i)(raftlog-metadata-version|content-length): [^\r]+")
REFUSED = re.compile(rb"HTTP/1\.1 4(00|14|31) ")


class _Clock(VirtualClock):
    """Both brokers stamp the same."""

    def wall_ms(self) -> int:
        return 1_000_000_000_000


class Broker:
    """One whose connections all begin with the same reader."""

    def __init__(self, *, is_plain: bool) -> None:
        self.cluster = fake_cluster(LIMITS, clock=_Clock())
        request_pipeline = RequestPipeline(
            replace(self.cluster.services, allowed_origins=frozenset({LISTED_ORIGIN}))
        )
        limit = ConnectionLimit("HTTP", 100, 100, request_pipeline.metrics)
        self._accept: Callable[[], asyncio.BaseProtocol] = AiohttpServer(
            request_pipeline, KEEPALIVE_S, limit
        ).accept
        if is_plain:
            self._accept = FastPathServer(
                request_pipeline, self._accept, KEEPALIVE_S, request_pipeline.admission.answers, limit
            ).accept

    async def answers(self, pieces: list[bytes]) -> bytes:
        """Everything that comes back on a connection of its own, but for what always differs."""
        wire = Wire(self._accept())
        for piece in pieces:
            wire.send(piece)
            await asyncio.sleep(0.001)
        await asyncio.sleep(2)  # longer than all limits
        is_open = not wire.is_closing()
        wire.close()
        await asyncio.sleep(1)  # so that what waits notices
        return VARYING.sub(rb"\1\2", wire.answers) + (b"open" if is_open else b"closed")


async def brokers() -> tuple[Broker, Broker]:
    """One of each kind, with the same topic."""
    both = Broker(is_plain=True), Broker(is_plain=False)
    for broker in both:
        await broker.cluster.controller.create_topic(
            "orders", partitions=1, replication_factor=3, config={}, timeout_ms=1000
        )
    return both


@pytest.mark.parametrize("part", range(PARTS))
async def test_mutants_of_valid_requests_are_answered_alike(part: int) -> None:
    for number in range(part * MUTANTS_OF_PART, (part + 1) * MUTANTS_OF_PART):
        if number % MUTANTS_OF_CLUSTER == 0:
            plain, other = await brokers()
        pieces = mutant(number)
        answers = await plain.answers(pieces)
        others = await other.answers(pieces)
        assert not FAILED.search(answers + others), (number, pieces, answers, others)
        if answers != others:
            # aiohttp drops the requests in front of what is no HTTP, if all came in one piece.
            assert REFUSED.match(others), (number, pieces, answers, others)
            assert VERSION.sub(b"", answers).endswith(VERSION.sub(b"", others)), (number, pieces)
            plain, other = await brokers()
