"""Members of a group copy their input in transactions, while leaders change and links break.

Each member has a transactional id of its own: only the group keeps two of them from copying the same input.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from groups.records import TOPIC as OFFSETS
from groups.requests import (
    AddOffsets,
    GroupView,
    Joined,
    OffsetCommit,
    ReadGroup,
    Reply,
    Request,
    Sync,
    Synced,
)
from groups.requests import Join as JoinGroup
from raftlog.errors import OffsetsPending, RaftlogError
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import PartitionCluster
from tests.helpers.transactional import TransactionalProducer, break_things, committed, visible_values
from transactions.records import TOPIC
from transactions.requests import End, Ended, Join

GROUP = "copiers"
INPUT, INPUTS = "bills", 2  # its offsets alone matter here
LEADERS = [("orders", 0), (OFFSETS, 0), (TOPIC, 0)]
SECONDS = 40.0
SESSION_MS = 600
STALLS_S = (0.0, 0.0, 0.0, 0.02, 0.02, 0.1, 1.5)  # the last is longer than a session


class Copier:
    """One member with one transactional id. What it does not know for sure, it aborts."""

    def __init__(self, cluster: PartitionCluster, name: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._name = name
        self._rng = rng
        self._topic_id = cluster.any.controller.image.topics[INPUT].topic_id
        self._generation = -1
        self.committed = 0

    async def run(self, until_s: float) -> None:
        """Join, copy, and join again after each error."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s:
            broker = self._cluster.brokers[self._rng.choice(self._cluster.nodes)]
            producer = TransactionalProducer(broker, self._name, timeout_ms=3_000)
            try:
                await producer.open()
                assignment = await self._joined()
                for _ in range(self._rng.randint(1, 10)):
                    for partition in assignment:
                        await self._copy(producer, partition)
            except RaftlogError:
                await asyncio.sleep(0.05)

    async def _joined(self) -> tuple[int, ...]:
        """The partitions of this member."""
        joined = await self._ask(
            JoinGroup(
                group=GROUP,
                member_id=self._name,
                topics=(INPUT,),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                generation=self._generation,
            )
        )
        assert isinstance(joined, Joined)
        self._generation = joined.generation
        synced = await self._ask(
            Sync(group=GROUP, member_id=self._name, generation=self._generation, is_auto=True)
        )
        assert isinstance(synced, Synced)
        return synced.assignment.get(INPUT, ())

    async def _copy(self, producer: TransactionalProducer, partition: int) -> None:
        """The next input, with its offset, in one transaction."""
        place = INPUT, partition
        try:
            positions = await producer.broker.groups.offsets.positions(GROUP, [place], timeout_ms=2_000)
        except OffsetsPending:
            await asyncio.sleep(0.05)
            return
        begin, handle = positions.get(place, 0), producer.handle
        await asyncio.sleep(self._rng.choice(STALLS_S))
        try:
            await producer.write(f"{partition} {begin}".encode())
            await asyncio.sleep(self._rng.choice(STALLS_S))
            await producer.ask(Join(transaction=handle, groups=(GROUP,)))
            await self._ask(
                AddOffsets(
                    group=GROUP,
                    offsets=(
                        OffsetCommit(
                            topic=INPUT, topic_id=self._topic_id, partition=partition, offset=begin + 1
                        ),
                    ),
                    member_id=self._name,
                    generation=self._generation,
                    producer_id=handle.producer_id,
                    epoch=handle.epoch,
                    transaction=str(handle),
                )
            )
        except RaftlogError:
            await self._end(producer, is_commit=False)
            raise
        await asyncio.sleep(self._rng.choice(STALLS_S))
        self.committed += await self._end(producer, is_commit=self._rng.random() < 0.8)

    async def _end(self, producer: TransactionalProducer, *, is_commit: bool) -> bool:
        """Whether it is committed, as soon as somebody knows."""
        while True:
            try:
                reply = await producer.ask(End(transaction=producer.handle, is_commit=is_commit))
            except RaftlogError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0.05)
                continue
            assert isinstance(reply, Ended)
            producer.begins(producer.handle.producer_id, reply.next_epoch)
            return reply.is_committed

    async def _ask(self, request: Request) -> Reply:
        broker = self._cluster.brokers[self._rng.choice(self._cluster.nodes)]
        return await broker.groups.service.ask(request, timeout_ms=2_000, creates=True)


async def settled(cluster: PartitionCluster) -> tuple[list[bytes | None], dict[int, int]]:
    """What is visible, and the committed offsets, once all transactions have ended: soon, by themselves."""
    async with asyncio.timeout(20):
        while True:
            await asyncio.sleep(0.1)
            try:
                result = await committed(cluster.any)
                view = await cluster.any.groups.service.ask(ReadGroup(group=GROUP), timeout_ms=2_000)
            except RaftlogError:
                continue
            assert isinstance(view, GroupView)
            if not view.pending and result.next_offset == result.high_watermark:
                return visible_values(result), {number: found.offset for _, number, found in view.offsets}


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_each_input_has_one_visible_output(seed: int) -> None:
    # requirement: D3
    rng = random.Random(seed)
    async with PartitionCluster() as cluster:
        await cluster.create(INPUT, partitions=INPUTS)
        until_s = asyncio.get_running_loop().time() + SECONDS
        copiers = [Copier(cluster, name, rng) for name in ("a", "b", "c")]
        breaking = asyncio.create_task(break_things(cluster, LEADERS, rng, until_s))
        await asyncio.gather(*(copier.run(until_s) for copier in copiers))
        await breaking
        visible, offsets = await settled(cluster)
        wanted = [f"{number} {at}".encode() for number, end in offsets.items() for at in range(end)]
        assert sorted(visible, key=str) == sorted(wanted, key=str)
        assert sum(copier.committed for copier in copiers) == len(wanted) > 40, offsets
