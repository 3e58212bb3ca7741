"""A broker that other machines reach without authentication says so, in its log and in a metric."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import settled

pytestmark = pytest.mark.e2e


def test_a_listener_beyond_loopback_is_warned_about_at_each_start(directory: Path) -> None:
    # requirement: X3
    cluster = Cluster(directory / "cluster", brokers=2)
    url = cluster.url(2)
    cluster.add_environment(
        2,
        {
            "RAFTLOG_BROKER__INSECURE": "true",
            "RAFTLOG_BROKER__HTTP__HOST": "0.0.0.0",
            "RAFTLOG_BROKER__HTTP__ADVERTISED_URL": url,
        },
    )
    with cluster:
        insecure = {
            broker: "\nraftlog_insecure 1" in settled(cluster.url(broker), "GET", "/metrics").body.decode()
            for broker in (1, 2)
        }
        assert insecure == {1: False, 2: True}
        warning = "insecure: any machine that reaches http.host can read and change all data"
        assert [warning in cluster.log_text(broker) for broker in (1, 2)] == [False, True]
