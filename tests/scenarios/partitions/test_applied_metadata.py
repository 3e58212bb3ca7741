"""Folders are kept by metadata that is older than the applied one, or another cluster's."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import pytest

from partitions.hosting.applied_metadata import APPLIED_FILE, Applied, AppliedMetadata
from partitions.hosting.directories import Folders
from partitions.hosting.trash import Trash
from partitions.metadata.image import MetadataImage
from partitions.values import QUORUM
from raftlog.clock import SystemClock
from raftlog.storage import twin_file
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.moving import values
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.virtual_time import eventually


def image(version: int, bootstrap_id: str = "b") -> MetadataImage:
    return MetadataImage(bootstrap_id=bootstrap_id, version=version)


def fresh(filesystem: FakeFilesystem) -> AppliedMetadata:
    """As after a start of the broker."""
    return AppliedMetadata(filesystem, "/data")


def disk() -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    return filesystem


# requirement: T7
def test_metadata_that_goes_on_has_no_objection_and_is_remembered() -> None:
    filesystem = disk()
    assert [fresh(filesystem).objection(image(version)) for version in (3, 3, 9)] == ["", "", ""]
    assert twin_file.load(filesystem, "/data", APPLIED_FILE, Applied) == Applied("b", 9)


# requirement: T7
def test_metadata_that_was_older_once_is_not_believed_when_it_has_grown() -> None:
    filesystem = disk()
    assert fresh(filesystem).objection(image(9)) == ""
    for version in (8, 9, 20):
        assert "was older" in fresh(filesystem).objection(image(version))


def test_other_metadata_is_not_believed_and_does_not_replace_what_is_remembered() -> None:
    filesystem = disk()
    assert fresh(filesystem).objection(image(9)) == ""
    assert "belong to other metadata" in fresh(filesystem).objection(image(20, "another"))
    assert fresh(filesystem).objection(image(9)) == ""


def test_what_nobody_can_read_is_an_objection() -> None:
    filesystem = disk()
    assert fresh(filesystem).objection(image(9)) == ""
    for ending in twin_file.ENDINGS:
        filesystem.overwrite(f"/data/{APPLIED_FILE}{ending}", b"rotten")
    assert "belong to is unknown" in fresh(filesystem).objection(image(9))


def test_a_full_disk_lets_folders_go_by_newer_metadata_but_not_by_the_first() -> None:
    class Full(FakeFilesystem):
        is_full = False

        def replace_file(self, path: str, data: bytes) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "no room on purpose", path)
            super().replace_file(path, data)

    filesystem = Full()
    filesystem.make_directories("/data")
    filesystem.is_full = True
    with pytest.raises(OSError, match="no room"):
        fresh(filesystem).objection(image(1))
    filesystem.is_full = False
    applied = fresh(filesystem)
    assert applied.objection(image(2)) == ""
    filesystem.is_full = True
    assert applied.objection(image(3)) == ""
    filesystem.is_full = False
    assert applied.objection(image(3)) == ""
    assert twin_file.load(filesystem, "/data", APPLIED_FILE, Applied) == Applied("b", 3)


@in_virtual_time
async def test_no_folder_is_given_up_before_metadata_was_confirmed() -> None:
    filesystem = disk()
    filesystem.make_directories("/data/orders")
    trash = Trash(filesystem, "/data", SystemClock(), asyncio.to_thread)
    folders = Folders(filesystem, "/data", asyncio.to_thread, trash)
    assert not await folders.give_up("/data/orders", "deleted")
    assert filesystem.exists("/data/orders")
    await folders.note(image(1))
    assert await folders.give_up("/data/orders", "deleted")
    assert not filesystem.exists("/data/orders")


# requirement: T7
@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_a_broker_whose_cluster_has_lost_metadata_keeps_the_folders_that_it_does_not_know(
    cluster: ControlledCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create("orders")
    applied = cluster.any.controller.image
    await cluster.stop(NodeId(3))
    lost = tmp_path / "broker-3" / f"lost-{'ab' * 16}" / "Partition-0"
    lost.mkdir(parents=True)
    newer = Applied(applied.bootstrap_id, applied.version + 1000)
    twin_file.keep(OsFilesystem(), str(tmp_path / "broker-3"), APPLIED_FILE, newer)
    await cluster.start(NodeId(3))
    await eventually(lambda: "was older when confirmed" in caplog.text)
    await cluster.delete("orders")
    assert lost.exists()
    assert list((tmp_path / "broker-3").glob("orders-*/Partition-0/*.log"))
    assert not list((tmp_path / "broker-1").glob("orders-*"))


# requirement: T7
@in_virtual_time
async def test_the_records_of_a_deleted_topic_come_back_into_a_new_one(tmp_path: Path) -> None:
    async with ControlledCluster(str(tmp_path)) as cluster:
        await cluster.create("orders")
        for value in (b"a", b"b"):
            await cluster.any.gateway.append(ORDERS, batch_of(value), acks=QUORUM, timeout_ms=5000)
        await cluster.delete("orders")
        await cluster.create("orders")
    for broker in range(1, 4):
        data = tmp_path / f"broker-{broker}"
        (deleted,) = data.glob("trash/*-deleted/orders-*/Partition-0")
        (fresh,) = data.glob("orders-*/Partition-0")
        shutil.rmtree(fresh)
        shutil.copytree(deleted, fresh)
    async with ControlledCluster(str(tmp_path)) as cluster:
        assert await values(cluster.any) == [b"a", b"b"]
        await cluster.any.gateway.append(ORDERS, batch_of(b"c"), acks=QUORUM, timeout_ms=5000)
        assert await values(cluster.any) == [b"a", b"b", b"c"]
