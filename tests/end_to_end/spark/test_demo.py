"""The last act of the demo, with all its flights."""

from __future__ import annotations

from pathlib import Path
from subprocess import CalledProcessError

import pytest

from chaos.cluster import Cluster
from chaos.demo import flights, spark
from raftlog import Client
from tests.helpers.real_cluster import create_topic

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)]


# requirement: A8 D3
def test_the_totals_are_right_although_the_driver_is_killed(
    brokers: Cluster, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = spark.why_not()
    if reason is not None:
        pytest.skip(reason)
    try:
        rows = [*flights.read(flights.fetch(Path(".cache")))]
    except CalledProcessError as error:
        pytest.skip(f"the flights cannot be fetched: {error}")
    create_topic(brokers.urls[0], "flights", 6)
    with client.producer("flights", preset="throughput") as producer:
        for key, value in rows:
            producer.send(value, key=key)
    is_good = spark.run(",".join(brokers.urls), "flights", rows, tmp_path)
    out = capsys.readouterr().out
    print(out)
    assert is_good
    assert "kill -9: the driver, after" in out
