"""What a real broker tells of its process and of its partitions, one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import call, create_topic, produce_surely

pytestmark = pytest.mark.e2e


def figures(url: str) -> dict[str, float]:
    """All samples of a broker by name and labels."""
    lines = call(url, "GET", "/metrics").body.decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_partitions_are_shown_one_by_one_up_to_the_limit(directory: Path) -> None:
    with Cluster(directory, brokers=1, environment={"RAFTLOG_LIMITS__PARTITION_METRICS_MAX": "2"}) as cluster:
        url = cluster.url(1)
        create_topic(url, "orders", 3, replication_factor=1)
        produce_surely([url], "orders", ["a", "b", "c"], partition=1)
        told = figures(url)
        assert told["process_resident_memory_bytes"] > 1 << 20
        assert told["process_open_fds"] > 0
        where = '{partition="1",topic="orders"}'
        assert told[f"raftlog_partition_high_watermark{where}"] == 3
        assert told[f"raftlog_partition_log_start_offset{where}"] == 0
        assert told[f"raftlog_partition_size_bytes{where}"] > 0
        assert told[f"raftlog_partition_leader{where}"] == 1
        assert told[f"raftlog_partition_in_sync_replicas{where}"] == 1
        shown = [name for name in told if name.startswith("raftlog_partition_leader")]
        assert shown == [
            f'raftlog_partition_leader{{partition="{number}",topic="orders"}}' for number in (0, 1)
        ]
        assert told["raftlog_partitions_not_shown"] == 1
