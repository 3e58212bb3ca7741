"""Requests with an idempotency key while leaders change, links break and brokers restart."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from partitions.routing.gateway import Gateway
from partitions.values import QUORUM, FetchRequest
from raftlog.errors import CommitUnknown, RaftlogError
from raftlog.records.builder import with_producer
from raftlog.types import NodeId, Offset, TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.orders import batch_of
from tests.helpers.transactional import break_things, visible_values
from transactions.one_shot import Answered
from transactions.records import TOPIC, Handle, Participant
from transactions.requests import Claim

TARGETS: list[Participant] = [("orders", 0), ("bills", 0), ("bills", 1)]
SECONDS = 10.0
TIMEOUT_MS = 1_500


class Client:
    """Repeats each of its requests until it has an answer, sometimes at two brokers at a time."""

    def __init__(self, cluster: PartitionCluster, name: str, rng: random.Random) -> None:
        self.answers: dict[str, bytes] = {}
        self.tally: Counter[str] = Counter()
        self._cluster = cluster
        self._name = name
        self._rng = rng

    async def run(self, until_s: float) -> None:
        """Request after request."""
        number = 0
        while asyncio.get_running_loop().time() < until_s:
            number += 1
            await self._repeat(f"{self._name}-{number}")

    async def _repeat(self, request: str) -> None:
        """Until there is an answer, and perhaps once more."""
        while request not in self.answers or self._rng.random() < 0.3:
            attempts = [self._attempt(request) for _ in range(1 if self._rng.random() < 0.8 else 2)]
            await asyncio.gather(*attempts)
            await asyncio.sleep(0.05)

    async def _attempt(self, request: str) -> None:
        broker = self._cluster.brokers.get(self._rng.choice(self._cluster.nodes))
        if broker is None:
            return
        claim = Claim(digest=request.encode(), fingerprint=b"body", attempt=self._rng.getrandbits(62))

        async def work(handle: Handle, left_ms: int) -> bytes:
            return await write(broker.gateway, handle, request.encode(), left_ms)

        try:
            answered = await broker.transactions.one_shots.run(
                work,
                partitions=TARGETS,
                transactional_id=None,
                claim=claim,
                spread=0,
                timeout_ms=TIMEOUT_MS,
            )
        except RaftlogError as error:
            self.tally[error.code] += 1
            if isinstance(error, CommitUnknown) and error.details.get("committed") is False:
                self.tally["nothing visible"] += 1
            return
        self._told(request, answered)

    def _told(self, request: str, answered: Answered) -> None:
        self.tally["replayed" if answered.is_replayed else "first"] += 1
        assert self.answers.setdefault(request, answered.answer) == answered.answer, "two answers"


async def write(gateway: Gateway, handle: Handle, value: bytes, timeout_ms: int) -> bytes:
    """One record in each partition; the offsets are the answer."""
    batch = with_producer(batch_of(value), handle.producer_id, handle.epoch, 0, in_transaction=True)
    outcomes = await asyncio.gather(
        *(
            gateway.append(
                TopicPartition(*target),
                [batch],
                acks=QUORUM,
                timeout_ms=timeout_ms,
                transactional_id=handle.transactional_id,
            )
            for target in TARGETS
        ),
        return_exceptions=True,
    )
    offsets: list[int] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        offsets.append(outcome.base_offset)
    return f"{handle} {offsets}".encode()


async def restart_brokers(cluster: PartitionCluster, rng: random.Random, until_s: float) -> None:
    """One after the other loses what it has in memory."""
    while asyncio.get_running_loop().time() < until_s:
        await asyncio.sleep(rng.uniform(1.0, 2.0))
        node = NodeId(rng.choice(cluster.nodes))
        await cluster.stop(node)
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        await cluster.start(node)


async def read_all(cluster: PartitionCluster, target: Participant) -> list[bytes | None]:
    """The visible values, once no transaction is open."""
    request = FetchRequest(position=Offset(0), bytes_max=1 << 24, committed_only=True)
    async with asyncio.timeout(30):
        while True:
            try:
                result = await cluster.any.gateway.fetch(TopicPartition(*target), request)
            except RaftlogError:
                await asyncio.sleep(0.1)
                continue
            if result.next_offset == result.high_watermark:
                return visible_values(result)
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_each_keyed_request_is_stored_once_and_answered_alike(seed: int) -> None:
    # requirement: D3
    rng = random.Random(seed)
    async with PartitionCluster() as cluster:
        await cluster.create("bills", partitions=2)
        until_s = asyncio.get_running_loop().time() + SECONDS
        clients = [Client(cluster, name, rng) for name in ("a", "b", "c")]
        breaking = asyncio.create_task(break_things(cluster, [*TARGETS, (TOPIC, 0)], rng, until_s))
        restarting = asyncio.create_task(restart_brokers(cluster, rng, until_s))
        await asyncio.gather(*(client.run(until_s) for client in clients))
        await asyncio.gather(breaking, restarting)
        requests = sorted(request.encode() for client in clients for request in client.answers)
        for target in TARGETS:
            assert sorted(value or b"" for value in await read_all(cluster, target)) == requests
        tally = sum((client.tally for client in clients), Counter[str]())
        assert min(tally["first"], tally["replayed"], tally["idempotency_in_progress"]) > 0, tally
