"""The demo's verdict, on clusters that refuse, lose, double and reorder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chaos import demo
from raftlog.client.client import AsyncClient
from tests.helpers.fake_broker import FakeCluster, FakePartition, Trouble, fake_cluster

ROWS = [(f"N{number % 7}", b"%d" % number) for number in range(300)]


def run(
    trouble: Callable[[FakeCluster], None] = lambda cluster: None,
    afterwards: Callable[[FakePartition], None] = lambda partition: None,
) -> tuple[demo.Sent, bool]:
    async def whole() -> tuple[demo.Sent, bool]:
        async def half_way() -> None:
            trouble(cluster)

        async with fake_cluster() as cluster:
            cluster.topics[demo.TOPIC] = [FakePartition() for _ in range(demo.PARTITIONS)]
            async with AsyncClient(cluster.urls) as client:
                sent = await demo.produce(client, ROWS, half_way)
                afterwards(max(cluster.topics[demo.TOPIC], key=lambda partition: partition.end))
                found = await demo.read_back(client)
        return sent, demo.verdict(sent, found, 1.0, found, 1.0)

    return asyncio.run(whole())


def test_everything_acknowledged_and_read_back_is_a_success(capsys: pytest.CaptureFixture[str]) -> None:
    sent, is_good = run()
    assert (sent.acknowledged, is_good) == (300, True)
    assert "records in, acknowledged                 300 of 300" in capsys.readouterr().out


def test_records_that_are_refused_are_not_acknowledged(capsys: pytest.CaptureFixture[str]) -> None:
    sent, is_good = run(lambda cluster: cluster.trouble(Trouble.TOO_LARGE))
    out = capsys.readouterr().out
    assert not is_good
    assert 0 < sent.acknowledged < 300
    assert f"records in, acknowledged          {sent.acknowledged:>10,} of 300   <-- WRONG" in out
    assert "not sent: too large" in out
    assert "THE DEMO FAILED" in out


def test_an_acknowledged_batch_that_is_lost_or_doubled_fails_the_demo() -> None:
    def lose(partition: FakePartition) -> None:
        partition.batches.pop()

    def double(partition: FakePartition) -> None:
        partition.append(bytes(partition.batches[-1].data))

    def forget_producers(partition: FakePartition) -> None:
        partition.producers.clear()
        double(partition)

    assert run(afterwards=lose)[1] is False
    assert run(afterwards=double)[1] is True  # it is known to be a duplicate
    assert run(afterwards=forget_producers)[1] is False
