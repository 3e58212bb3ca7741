"""Whose data directory it is, and that two brokers never share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.errors import InvalidRequest
from raftlog.storage.data_directory import DataDirectory, DataDirectoryRefused
from raftlog.types import NodeId, TopicId

TOPIC_ID = TopicId("0123456789abcdef" * 2)


def open_directory(path: Path, cluster_id: str = "blue", node_id: int = 1) -> DataDirectory:
    return DataDirectory.open(str(path), cluster_id=cluster_id, node_id=NodeId(node_id))


def test_a_new_directory_gets_an_identity_and_opens_again(tmp_path: Path) -> None:
    with open_directory(tmp_path / "deep" / "data") as data:
        assert data.identity.format_version == 1
    with open_directory(tmp_path / "deep" / "data"):
        pass


@pytest.mark.parametrize(("cluster_id", "node_id"), [("green", 1), ("blue", 2)])
def test_a_directory_of_another_broker_or_cluster_is_refused_with_both_names(
    tmp_path: Path, cluster_id: str, node_id: int
) -> None:
    open_directory(tmp_path).close()
    with pytest.raises(DataDirectoryRefused) as caught:
        open_directory(tmp_path, cluster_id, node_id)
    assert "broker 1 of cluster 'blue'" in str(caught.value)
    assert f"broker {node_id} of cluster {cluster_id!r}" in str(caught.value)
    open_directory(tmp_path).close()


def test_a_second_opening_is_refused_and_names_lock_and_holder(tmp_path: Path) -> None:
    with (
        open_directory(tmp_path),
        pytest.raises(DataDirectoryRefused, match=rf"{tmp_path}/lock is held by process {os.getpid()}"),
    ):
        open_directory(tmp_path)


def test_a_second_process_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    program = (
        "import sys; from raftlog.storage.data_directory import DataDirectory as D\n"
        "d = D.open(sys.argv[1], cluster_id='blue', node_id=1); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(DataDirectoryRefused, match=f"process {process.pid}"):
            open_directory(tmp_path)
        process.kill()
    open_directory(tmp_path).close()


def test_damaged_or_newer_identities_are_refused(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    identity = tmp_path / "raftlog.json"
    identity.write_text('{"cluster_id": "blue", "node_id": 1, "format_version": 2}')
    with pytest.raises(DataDirectoryRefused, match="format 2"):
        open_directory(tmp_path)
    identity.write_text("not json")
    with pytest.raises(DataDirectoryRefused, match="cannot be read"):
        open_directory(tmp_path)


# requirement: L3
def test_partitions_live_in_folders_named_after_topic_id_and_number(tmp_path: Path) -> None:
    with open_directory(tmp_path) as data:
        path = data.partition_directory("orders", TOPIC_ID, 3)
        assert path == f"{tmp_path}/orders-{TOPIC_ID}/Partition-3"
        Path(path).mkdir(parents=True)
        assert data.topic_directories() == [f"{tmp_path}/orders-{TOPIC_ID}"]


@pytest.mark.parametrize("topic", ["", "a/b", "..\\x", "ä", "x" * 250, "a b", "a\n"])
def test_a_name_that_could_leave_the_directory_never_becomes_a_path(tmp_path: Path, topic: str) -> None:
    with open_directory(tmp_path) as data:
        with pytest.raises(InvalidRequest, match=r"^topic: "):
            data.partition_directory(topic, TOPIC_ID, 0)
        with pytest.raises(InvalidRequest, match=r"^topic_id: "):
            data.partition_directory("orders", TopicId("../" + "0" * 29), 0)
        with pytest.raises(InvalidRequest, match=r"^partition: "):
            data.partition_directory("orders", TOPIC_ID, -1)
