"""A data directory belongs to one process of one broker of one cluster, and a cluster to its secret."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

import pytest

from broker.cluster_files import create_cluster, settings_path
from chaos.cluster import Cluster
from chaos.ports import free_ports
from raftlog.__main__ import COMMAND
from raftlog.testing.waits import LIMIT_S
from tests.helpers.real_cluster import create_topic, eventually, has_leaders, produce_surely

pytestmark = pytest.mark.e2e


def refused_start(config: Path) -> str:
    """What a broker prints that must not start."""
    ended = subprocess.run(
        [*COMMAND, "serve", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout + ended.stderr


def test_a_second_process_on_the_same_directory_is_refused_by_the_lock(unbroken: Cluster) -> None:
    said = refused_start(settings_path(unbroken.directory, 1))
    assert str(unbroken.data_directory(1) / "lock") in said
    assert str(unbroken.pid(1)) in said
    assert unbroken.running == [1, 2, 3]


def test_the_directory_of_another_cluster_or_broker_is_refused(directory: Path) -> None:
    mine, other = directory / "mine", directory / "other"
    with Cluster(mine, brokers=1) as cluster:
        kept = cluster.data_directory(1)
    create_cluster(other, brokers=2, http_port=free_ports(2))
    for broker, named in ((1, "cluster"), (2, "broker")):
        config = settings_path(other, broker)
        config.write_text(config.read_text().replace('"data"', f'"{kept}"'))
        said = refused_start(config)
        assert str(kept) in said, said
        assert named in said, said


def test_a_broker_with_another_secret_gets_no_connection(cluster: Cluster) -> None:
    create_topic(cluster.urls[0], "orders", 2)
    cluster.stop(3)
    wrong = cluster.directory / "wrong.secret"
    wrong.write_text(secrets.token_hex(32))
    wrong.chmod(0o600)
    cluster.launch(3, environment={"RAFTLOG_BROKER__SECRET_FILE": str(wrong)})
    url = cluster.url(3)
    eventually(lambda: "serving" in cluster.log_text(3).rpartition("stopping")[2], what="a start")
    for number in range(3):  # time enough for it to try
        produce_surely(cluster.urls[:2], "orders", [f"{number}"])
    assert not cluster.is_ready(3), url
    assert cluster.stop(3) == 0
    cluster.start(3)
    eventually(lambda: has_leaders(url, "orders", 2), what="leaders, as the broker sees it again")
