"""The demo's verdicts, on clusters that refuse, lose, double and reorder, and on its group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.demo import group, round_trip, spark
from chaos.demo.consumer import Page
from raftlog.client.client import AsyncClient
from tests.helpers.fake_broker import FakeCluster, FakePartition, Trouble, fake_cluster

ROWS = [(f"N{number % 7}", b"%d" % number) for number in range(300)]


def run(
    trouble: Callable[[FakeCluster], None] = lambda cluster: None,
    afterwards: Callable[[FakePartition], None] = lambda partition: None,
) -> tuple[round_trip.Sent, bool]:
    async def whole() -> tuple[round_trip.Sent, bool]:
        async def half_way() -> None:
            trouble(cluster)

        async with fake_cluster() as cluster:
            cluster.topics[round_trip.TOPIC] = [FakePartition() for _ in range(round_trip.PARTITIONS)]
            async with AsyncClient(cluster.urls) as client:
                sent = await round_trip.produce(client, ROWS, half_way)
                afterwards(max(cluster.topics[round_trip.TOPIC], key=lambda partition: partition.end))
                found = await round_trip.read_back(client)
        return sent, round_trip.verdict(sent, found, 1.0, found, 1.0)

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


FLIGHTS = [("N1", b'{"carrier":"UA"}'), ("N2", b'{"carrier":"UA"}'), ("N3", b'{"carrier":"AA"}')]


def handled(*pages: tuple[str, Page]) -> group.Counts:
    counts = group.Counts()
    for consumer, page in pages:
        counts.add(consumer, page)
    return counts


def test_a_flight_that_comes_twice_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    counts = handled(
        (group.VICTIM, Page(1.0, 0, [(0, "UA"), (1, "UA")])),
        ("consumer-1", Page(5.5, 0, [(1, "UA")])),
        ("consumer-1", Page(6.0, 1, [(0, "AA")])),
    )
    assert (counts.repeated, counts.taken_over_s([0], killed_s=2.0)) == (1, 3.5)
    assert group.verdict(counts, FLIGHTS, 3.5, 9.0)
    out = capsys.readouterr().out
    assert "by partition and offset: 1 flights" in out
    assert "taken over after 3.5 s" in out
    assert "UA 2, AA 1" in out


def test_a_missing_or_invented_flight_is_a_wrong_count(capsys: pytest.CaptureFixture[str]) -> None:
    missing = handled(("consumer-1", Page(1.0, 0, [(0, "UA"), (1, "UA")])))
    assert not group.verdict(missing, FLIGHTS, None, 9.0)
    assert "carriers with the right count              1 of 2   <-- WRONG" in capsys.readouterr().out
    invented = handled(("consumer-1", Page(1.0, 0, [(0, "UA"), (1, "UA"), (2, "AA"), (3, "AA")])))
    assert not group.verdict(invented, FLIGHTS, None, 9.0)


def test_nothing_is_taken_over_where_nothing_was_left() -> None:
    counts = handled((group.VICTIM, Page(1.0, 0, [(0, "UA")])), ("consumer-1", Page(1.5, 1, [(0, "AA")])))
    assert counts.taken_over_s([0], killed_s=2.0) is None


NOWHERE = Path("/nowhere")
DELAYED = [
    ("N1", b'{"carrier":"UA","dep_delay":"5"}'),
    ("N1", b'{"carrier":"UA","dep_delay":"-3"}'),
    ("N2", b'{"carrier":"UA","dep_delay":"NA"}'),
    ("N3", b'{"carrier":"AA","dep_delay":"7"}'),
]
AA = [(1, 1, 7)]


# requirement: A8
@pytest.mark.parametrize(
    ("united", "is_good"),
    [
        ([(2, 2, 2), (3, 2, 2)], True),
        ([(3, 2, 2)], True),
        ([(2, 2, 2)], False),  # a flight is lost
        ([(2, 2, 2), (4, 2, 2)], False),  # a flight counts twice
        ([(2, 2, 2), (2, 2, 2), (3, 2, 2)], False),  # a total is written twice
        ([(3, 2, 2), (2, 2, 2), (3, 2, 2)], False),  # the totals go back
        ([(3, 3, 2)], False),
    ],
)
def test_the_last_total_of_each_carrier_is_judged_and_each_is_there_once(
    united: list[tuple[int, int, int]], is_good: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.verdict({"UA": united, "AA": AA}, DELAYED, 1.0) is is_good
    assert ("THE DEMO FAILED" in capsys.readouterr().out) is not is_good


# requirement: A8
def test_a_carrier_without_a_total_fails_the_demo() -> None:
    assert not spark.verdict({"AA": AA}, DELAYED, 1.0)


# requirement: A8
def test_without_java_the_act_is_left_out_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert spark.run("localhost:1", "flights", DELAYED, NOWHERE)
    assert "skipping Spark: there is no Java; install a JRE of version 17" in capsys.readouterr().out
