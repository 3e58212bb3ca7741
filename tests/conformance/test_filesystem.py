"""The filesystems that pass the suite: the machine's own with and without syncs, and the fake one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.testing.fake_filesystem import FakeFilesystem
from tests.conformance.filesystem_suite import FilesystemSuite, Place
from tests.helpers.unsynced_filesystem import UnsyncedFilesystem


def os_place(tmp_path: Path) -> Place:
    return OsFilesystem(), str(tmp_path)


def unsynced_place(tmp_path: Path) -> Place:
    return UnsyncedFilesystem(), str(tmp_path)


def fake_place(tmp_path: Path) -> Place:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    return filesystem, "/data"


@pytest.fixture(params=[os_place, unsynced_place, fake_place], ids=["os", "unsynced", "fake"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    make: Callable[[Path], Place] = request.param
    return make(tmp_path)


class TestFilesystems(FilesystemSuite):
    """All three."""


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
