"""The filesystems that pass the suite: the machine's own with and without syncs, the fake, the kit's."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.kit.disk import UnreliableDisk
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.unsynced_filesystem import UnsyncedFilesystem
from tests.conformance.filesystem_suite import FilesystemSuite, Place


def os_place(tmp_path: Path) -> Place:
    return OsFilesystem(), str(tmp_path)


def unsynced_place(tmp_path: Path) -> Place:
    return UnsyncedFilesystem(), str(tmp_path)


def fake_place(tmp_path: Path) -> Place:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    return filesystem, "/data"


def kit_place(tmp_path: Path) -> Place:
    return UnreliableDisk(str(tmp_path), held_files_max=10), str(tmp_path)


@pytest.fixture(
    params=[os_place, unsynced_place, fake_place, kit_place], ids=["os", "unsynced", "fake", "kit"]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    make: Callable[[Path], Place] = request.param
    return make(tmp_path)


class TestFilesystems(FilesystemSuite):
    """All four."""


@pytest.mark.parametrize("synced", [(), ("/data",), ("/data/away",), ("/data", "/data/away")])
def test_a_power_loss_leaves_a_renamed_directory_at_one_of_its_names_with_all_its_files(
    synced: tuple[str, ...],
) -> None:
    found = set()
    for seed in range(20):
        filesystem = FakeFilesystem()
        filesystem.make_directories("/data/x")
        filesystem.make_directories("/data/away")
        for name in ("a", "b"):
            filesystem.replace_file(f"/data/x/{name}", b"kept")
        filesystem.rename("/data/x", "/data/away/x")
        for directory in synced:
            filesystem.sync_directory(directory)
        filesystem.lose_power(random.Random(seed))
        found.add((filesystem.exists("/data/x"), filesystem.exists("/data/away/x"), *filesystem.paths()))
    moved = (False, True, "/data/away/x/a", "/data/away/x/b")
    assert found == {moved} if len(synced) == 2 else {(True, False, "/data/x/a", "/data/x/b"), moved}


def test_the_disk_of_the_kit_keeps_what_was_synced_when_the_power_is_lost(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "old").write_bytes(b"from before")
    left = set()
    for seed in range(20):
        root = tmp_path / f"{seed}"
        shutil.copytree(tmp_path / "broker", root)
        disk = UnreliableDisk(str(root), held_files_max=10)
        disk.make_directories(f"{root}/log")
        disk.replace_file(f"{root}/log/state", b"durable")
        file = disk.open(f"{root}/log/segment", create=True)
        file.append([b"synced"])
        file.sync()
        disk.sync_directory(f"{root}/log")
        file.append([b", unsynced"])
        disk.open(f"{root}/log/unnamed", create=True).append([b"x"])
        disk.lose_power(random.Random(seed))
        assert (root / "old").read_bytes() == b"from before"
        assert (root / "log" / "state").read_bytes() == b"durable"
        content = (root / "log" / "segment").read_bytes()
        assert content.startswith(b"synced")
        left.add((len(content), (root / "log" / "unnamed").exists()))
    assert len({size for size, _ in left}) > 2
    assert {named for _, named in left} == {False, True}


def test_a_killed_process_of_the_kit_loses_nothing(tmp_path: Path) -> None:
    before = UnreliableDisk(str(tmp_path), held_files_max=10)
    before.open(f"{tmp_path}/segment", create=True).append([b"unsynced"])
    assert UnreliableDisk(str(tmp_path), held_files_max=10).read_file(f"{tmp_path}/segment") == b"unsynced"
