"""A broker is started on an older copy of its data directory: a backup, or a machine that was set back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.real_cluster import create_topic, eventually, has_leaders, produce_surely, read_all

TOPIC = "orders"
WITHIN_S = 30
COPIED, BEHIND, OTHER = 1, 2, 3


@pytest.fixture
def brokers(directory: Path) -> Iterator[Cluster]:
    """Three brokers whose disks age fast."""
    with Cluster(directory, environment={"RAFTLOG_TIMING__DISK_AGE_MS": "100"}) as cluster:
        yield cluster


# requirement: F6
@pytest.mark.e2e
def test_an_older_copy_of_a_data_directory_elects_nobody(brokers: Cluster, tmp_path: Path) -> None:
    """The copy and a broker that was down are a majority, and neither has what the others acknowledged."""
    create_topic(brokers.urls[0], TOPIC, 1)
    values = [f"before-{number}" for number in range(10)]
    for value in values:
        produce_surely(brokers.urls, TOPIC, [value])
    age = partial(brokers.metric, "raftlog_disk_age", broker=COPIED)
    copied = age()
    brokers.kill(COPIED)
    shutil.copytree(brokers.data_directory(COPIED), tmp_path / "copy")
    brokers.start(COPIED)
    eventually(lambda: age() > copied + 5, within_s=WITHIN_S, what="a disk that is older than its copy")
    brokers.kill(BEHIND)
    for number in range(10):
        value = f"after-{number}"
        produce_surely([brokers.url(COPIED), brokers.url(OTHER)], TOPIC, [value])
        values.append(value)
    brokers.kill(OTHER)
    brokers.kill(COPIED)
    shutil.rmtree(brokers.data_directory(COPIED))
    shutil.copytree(tmp_path / "copy", brokers.data_directory(COPIED))
    brokers.launch(BEHIND)
    brokers.launch(COPIED)
    rejoins = "__cluster_metadata/Partition-0 is an older copy"
    eventually(lambda: rejoins in brokers.log_text(COPIED), within_s=WITHIN_S, what="it begins again")
    brokers.launch(OTHER)
    brokers.wait_ready(*brokers.brokers, wait_s=WITHIN_S)
    eventually(partial(has_leaders, brokers.urls[0], TOPIC, 1), within_s=WITHIN_S, what="a leader")
    for url in brokers.urls:
        assert [value for _, value in read_all(url, TOPIC)] == values
