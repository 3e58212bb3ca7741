"""What a real broker tells of its process and of its partitions, one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import Json, call, create_topic, eventually, produce_surely, surely

pytestmark = pytest.mark.e2e


def figures(url: str) -> dict[str, float]:
    """All samples of a broker by name and labels."""
    lines = call(url, "GET", "/metrics").body.decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_partitions_are_shown_one_by_one_up_to_the_limit(directory: Path) -> None:
    with Cluster(
        directory, brokers=1, environment={"RAFTLOG_BROKER__LIMITS__PARTITION_METRICS_MAX": "2"}
    ) as cluster:
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


def test_transactions_are_shown_by_their_coordinator_and_by_leaders(directory: Path) -> None:
    with Cluster(directory, brokers=1) as cluster:
        url = cluster.url(1)
        create_topic(url, "orders", 1, replication_factor=1)
        opened = surely(
            [url], "POST", "/v1/transactions", {"transactional_id": "copy"}, random.Random(1)
        ).json
        sent = {"Raftlog-Transaction": str(opened["id"])}
        for value in ("a", "b"):
            body = {"records": [{"value": value}]}
            assert call(url, "POST", "/v1/topics/orders/records", body, sent).status == 200
        lag = 'raftlog_partition_last_stable_lag{partition="0",topic="orders"}'
        told = figures(url)
        assert told['raftlog_transactions{state="ongoing"}'] == 1
        assert told["raftlog_transaction_oldest_seconds"] > 0
        assert told[lag] == 2
        call(url, "POST", f"/v1/transactions/{opened['id']}:abort", None)
        told = figures(url)
        assert told['raftlog_transactions{state="ongoing"}'] == told[lag] == 0
        assert told['raftlog_transactions_aborted_total{reason="producer"}'] == 1
        assert told["raftlog_transactions_committed_total"] == 0
        assert told["raftlog_transaction_markers_unwritten"] == 0


def post(url: str, path: str, body: object, *, method: str = "POST") -> Json:
    """Repeated until the coordinator leads: the first request of a cluster creates its topic."""
    reply = surely([url], method, path, body, random.Random(1))
    assert reply.status in (200, 204), reply.body
    return reply.json


def test_groups_are_shown_by_their_coordinator_up_to_the_limit(directory: Path) -> None:
    with Cluster(
        directory, brokers=1, environment={"RAFTLOG_BROKER__LIMITS__GROUP_METRICS_MAX": "2"}
    ) as cluster:
        url = cluster.url(1)
        create_topic(url, "orders", 1, replication_factor=1)
        produce_surely([url], "orders", ["a", "b", "c"], partition=0)
        offsets = {"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]}
        poll = {"topics": ["orders"], "wait": "0s", "session_timeout": "30m"}
        path = "/v1/groups/mail/members/a:poll"
        eventually(lambda: post(url, path, poll)["action"] == "continue", what="a member of the group")
        for name in ("billing", "zebra"):
            post(url, f"/v1/groups/{name}/offsets", offsets, method="PUT")
        told = figures(url)
        assert told["raftlog_groups"] == 3
        assert told["raftlog_groups_not_shown"] == 1
        assert told['raftlog_group_members{group="mail"}'] == 1
        assert told['raftlog_group_members{group="billing"}'] == 0
        assert told['raftlog_group_generation{group="mail"}'] == 1
        assert told['raftlog_group_rebalances_total{group="mail",reason="joined"}'] == 1
        assert told['raftlog_group_last_rebalance_seconds{group="mail"}'] >= 0
        assert told["raftlog_group_offsets_committed_total"] == 2
        assert told["raftlog_group_members_expired_total"] == 0
        assert not any("zebra" in name for name in told)
        where = '{group="billing",partition="0",topic="orders"}'
        told = eventually(
            lambda: found if f"raftlog_group_lag_records{where}" in (found := figures(url)) else None,
            what="the lag of the group",
        )
        assert told[f"raftlog_group_lag_records{where}"] == 2
        assert told[f"raftlog_group_lag_seconds{where}"] >= 0
