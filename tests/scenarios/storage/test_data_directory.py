"""The directory of a broker: one process at a time, and what a killed one leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.records.batch import check_batch, split_batches
from raftlog.storage import twin_file
from raftlog.storage.data_directory import DataDirectory, DataDirectoryRefused, Identity, is_in_use
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.types import NodeId
from tests.helpers.small_log import open_log


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


def test_a_removed_lock_file_lets_no_second_process_in(tmp_path: Path) -> None:
    with open_directory(tmp_path):
        (tmp_path / "lock").unlink()
        for _ in range(2):  # the first attempt has made a lock file again
            assert is_in_use(str(tmp_path))
            with pytest.raises(DataDirectoryRefused, match=f"{tmp_path} is held by process"):
                open_directory(tmp_path)
    assert not is_in_use(str(tmp_path))
    open_directory(tmp_path).close()


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


def test_damage_to_one_of_the_two_files_is_repaired_and_to_both_refused(tmp_path: Path) -> None:
    open_directory(tmp_path).close()
    identity, twin = tmp_path / "raftlog.json", tmp_path / "raftlog.json.twin"
    whole = identity.read_bytes()
    for path in (identity, twin):
        path.write_text("not json")
        open_directory(tmp_path).close()
        assert path.read_bytes() == whole
        path.unlink()
        with pytest.raises(DataDirectoryRefused, match="cluster 'green'"):
            open_directory(tmp_path, "green")
    identity.write_text("not json")
    twin.unlink()
    with pytest.raises(DataDirectoryRefused, match="restore one of them"):
        open_directory(tmp_path)


def test_the_directory_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    newer = Identity(cluster_id="blue", node_id=1, format_version=2)
    twin_file.keep(OsFilesystem(), str(tmp_path), "raftlog.json", newer)
    with pytest.raises(DataDirectoryRefused, match="format 2"):
        open_directory(tmp_path)


def test_what_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    filesystem = OsFilesystem()
    with DataDirectory.open(f"{tmp_path}/data", cluster_id="c", node_id=NodeId(1)):
        filesystem.make_directories(f"{tmp_path}/data/topic/part")
        filesystem.open(f"{tmp_path}/data/topic/part/0.log", create=True).close()
        filesystem.replace_file(f"{tmp_path}/data/topic/epochs", b"")
        made = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert {path.name: f"{path.stat().st_mode & 0o777:o}" for path in made} == {
        "data": "700",
        "lock": "600",
        "raftlog.json": "600",
        "raftlog.json.twin": "600",
        "topic": "700",
        "part": "700",
        "0.log": "600",
        "epochs": "600",
    }


def test_directory_that_others_may_use_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    with DataDirectory.open(str(data), cluster_id="c", node_id=NodeId(1)):
        assert [record.message for record in caplog.records] == [
            f"{data} is accessible to other users (mode 755); run: chmod -R go= {data}"
        ]
    caplog.clear()
    data.chmod(0o700)
    with DataDirectory.open(str(data), cluster_id="c", node_id=NodeId(1)):
        assert not caplog.records


WRITER = """
import sys
from raftlog.core.ready import HardState
from tests.helpers.storage_batches import storage_batch
from tests.helpers.small_log import open_log

log = open_log(sys.argv[1])
log.save_hard_state(HardState(1, None))
while True:
    for _ in range(20):
        log.append([storage_batch(log.last_index + 1, 3, body=bytes(200))])
    flush = log.take_sync()
    flush.run()
    log.sync_finished(flush)
    print(log.durable_index, flush=True)
"""


# requirement: L9, N4
def test_what_was_durable_when_the_process_was_killed_is_there(tmp_path: Path) -> None:
    durable_index = -1
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(30):
                durable_index = int(process.stdout.readline())
            process.kill()
            durable_index = max(
                [durable_index, *(int(line) for line in process.stdout if line.endswith("\n"))]
            )
        log = open_log(str(tmp_path))
        assert log.last_index >= durable_index
        batches = split_batches(log.read(log.first_index, log.last_index, bytes_max=1 << 30).read())
        assert [batch.base_offset for batch in batches] == list(range(0, int(log.last_index) + 1, 3))
        for batch in batches:
            check_batch(batch)
        log.close()
