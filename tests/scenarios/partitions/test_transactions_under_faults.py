"""Transactions over several partitions while leaders change, links break and incarnations are replaced."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from partitions.values import FetchRequest
from raftlog.errors import NoLeader, RaftlogError
from raftlog.types import Offset, TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import ControlledBroker, PartitionCluster
from tests.helpers.transactional import TransactionalProducer, break_things, visible_values
from transactions.records import TOPIC, Handle, Participant
from transactions.requests import End, Ended

TARGETS: list[Participant] = [("orders", 0), ("bills", 0), ("bills", 1)]
LEADERS = [("orders", 0), ("bills", 0), ("bills", 1), (TOPIC, 0)]
SECONDS = 12.0


@dataclass
class Ledger:
    """What producers were told: values by transaction, and outcomes; None where nobody knows."""

    acked: dict[Handle, list[tuple[Participant, bytes]]] = field(default_factory=dict)
    sent: dict[Handle, list[tuple[Participant, bytes]]] = field(default_factory=dict)
    outcomes: dict[Handle, bool | None] = field(default_factory=dict)
    ended: set[Handle] = field(default_factory=set)


class Copier:
    """A producer that believes what it is told; its incarnations follow one another, or overlap."""

    def __init__(self, cluster: PartitionCluster, ledger: Ledger, name: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._name = name
        self._rng = rng

    async def run(self, until_s: float) -> None:
        """Transaction after transaction."""
        loop, number = asyncio.get_running_loop(), 0
        while loop.time() < until_s:
            node = self._rng.choice(self._cluster.nodes)
            producer = TransactionalProducer(self._cluster.brokers[node], self._name, timeout_ms=2_000)
            try:
                await producer.open()
                for _ in range(self._rng.randint(1, 6)):
                    number += 1
                    await self._transact(producer, number)
            except RaftlogError:
                await asyncio.sleep(0.05)

    async def _transact(self, producer: TransactionalProducer, number: int) -> None:
        handle, ledger = producer.handle, self._ledger
        sent, acked = ledger.sent.setdefault(handle, []), ledger.acked.setdefault(handle, [])
        ledger.outcomes[handle] = None
        is_commit = self._rng.random() < 0.7
        try:
            for part in range(self._rng.randint(1, 4)):
                topic, partition = target = self._rng.choice(TARGETS)
                value = f"{self._name} {handle.producer_id} {handle.epoch} {number} {part}".encode()
                sent.append((target, value))
                await producer.write(value, topic=topic, partition=partition)
                acked.append((target, value))
                if self._rng.random() < 0.1:
                    await asyncio.sleep(self._rng.choice((0.1, 2.5)))
        except RaftlogError:
            is_commit = False  # it cannot know what is stored
        await self._end(producer, handle, is_commit)

    async def _end(self, producer: TransactionalProducer, handle: Handle, is_commit: bool) -> None:
        """Until there is an answer."""
        while True:
            try:
                reply = await producer.ask(End(transaction=handle, is_commit=is_commit))
            except RaftlogError as error:
                if error.retryable:
                    await asyncio.sleep(0.05)
                    continue
                raise
            assert isinstance(reply, Ended)
            assert is_commit or not reply.is_committed, f"{handle} was committed by nobody"
            assert self._ledger.outcomes[handle] in (None, reply.is_committed)
            self._ledger.outcomes[handle] = reply.is_committed
            producer.handle = Handle(self._name, handle.producer_id, reply.next_epoch)
            producer.sequences.clear()
            return


async def read_all(broker: ControlledBroker, target: Participant) -> tuple[list[bytes | None], bool]:
    """The visible values, and whether these are all that there are."""
    request = FetchRequest(position=Offset(0), bytes_max=1 << 24, committed_only=True)
    result = await broker.gateway.fetch(TopicPartition(*target), request)
    return visible_values(result), result.next_offset == result.high_watermark


async def watch(
    cluster: PartitionCluster, rng: random.Random, seen: dict[Participant, list[bytes | None]]
) -> None:
    """A reader that goes on reading from the start: what it has seen never changes."""
    while True:
        await asyncio.sleep(0.1)
        target = rng.choice(TARGETS)
        try:
            values, _ = await read_all(cluster.brokers[rng.choice(cluster.nodes)], target)
        except RaftlogError:
            continue
        before = seen.setdefault(target, [])
        shorter = min(len(before), len(values))
        assert values[:shorter] == before[:shorter], f"{target} has changed under its reader"
        seen[target] = max(before, values, key=len)


@pytest.mark.parametrize("seed", range(4))
@in_virtual_time
async def test_transactions_are_seen_whole_or_not_at_all(seed: int) -> None:
    # requirement: D3
    rng = random.Random(seed)
    async with PartitionCluster() as cluster:
        await cluster.create("bills", partitions=2)
        ledger, seen = Ledger(), dict[Participant, list[bytes | None]]()
        until_s = asyncio.get_running_loop().time() + SECONDS
        copiers = [Copier(cluster, ledger, name, rng) for name in ("a", "a", "b", "sink~c")]
        watching = asyncio.create_task(watch(cluster, rng, seen))
        breaking = asyncio.create_task(break_things(cluster, LEADERS, rng, until_s))
        await asyncio.gather(*(copier.run(until_s) for copier in copiers))
        await breaking
        assert not watching.done(), watching.result()
        watching.cancel()
        found = await settled(cluster)
        check(ledger, found)
        for target, values in seen.items():
            assert found[target][: len(values)] == values
        tally = Counter(ledger.outcomes.values())
        assert min(tally[True], tally[False]) > 5, tally


async def settled(cluster: PartitionCluster) -> dict[Participant, list[bytes | None]]:
    """What is visible once every transaction has ended: that is soon, by itself."""
    found: dict[Participant, list[bytes | None]] = {}

    async def ended() -> bool:
        for target in TARGETS:
            try:
                found[target], is_all = await read_all(cluster.any, target)
            except NoLeader:
                return False
            if not is_all:
                return False
        return True

    async with asyncio.timeout(20):
        while not await ended():
            await asyncio.sleep(0.1)
    return found


def check(ledger: Ledger, found: dict[Participant, list[bytes | None]]) -> None:
    """Whole or not at all, once, and as the producer was told."""
    visible = Counter((target, value) for target, values in found.items() for value in values)
    assert max(visible.values(), default=1) == 1, "a value is visible twice"
    for handle, sent in ledger.sent.items():
        acked, outcome = ledger.acked[handle], ledger.outcomes[handle]
        shown = {item for item in sent if visible[item]}
        if outcome is None:
            outcome = bool(shown)
        if outcome:
            assert shown == set(acked) == set(sent), f"{handle} is torn: {set(acked) - shown}"
        else:
            assert not shown, f"{handle} was aborted, and {shown} is visible"
