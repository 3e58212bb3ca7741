"""Folders are deleted only by metadata that is confirmed, and no older than the applied one."""

from __future__ import annotations

import asyncio
import errno
import random
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from partitions.hosting.applied_metadata import APPLIED_FILE, Applied, AppliedMetadata
from partitions.hosting.directories import RECOVERY_FILE, Folders, folder_name
from partitions.hosting.replica_manager import ReplicaManager
from partitions.hosting.trash import Trash
from partitions.metadata.commands import SetClusterId
from partitions.metadata.image import MetadataImage
from partitions.values import QUORUM
from raftlog.clock import SystemClock
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.group_host import GroupHost
from raftlog.storage import twin_file
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.filesystem import File, Filesystem
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.replica_progress import ReplicaProgress
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.testing.waits import LIMIT_S
from raftlog.types import GroupId, NodeId
from tests.helpers.async_tests import in_real_time, in_virtual_time_with
from tests.helpers.controlled_cluster import PRODUCER_IDS, ControlledCluster
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.metadata_images import applied, create, register
from tests.helpers.metadata_images import cluster as image_of_cluster
from tests.helpers.moving import values
from tests.helpers.orders import ORDERS, batch_of
from tests.helpers.virtual_time import VirtualClock, eventually
from tests.helpers.waiting import until


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
    assert "the cluster of its folders is unknown" in fresh(filesystem).objection(image(9))


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
    await eventually(lambda: "confirmed metadata was older later" in caplog.text)
    await cluster.delete("orders")
    assert lost.exists()
    assert list((tmp_path / "broker-3").glob("orders-*/Partition-0/*.log"))
    assert not list((tmp_path / "broker-1").glob("orders-*"))


# requirement: T7
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


ME = NodeId(1)
Result = TypeVar("Result")


class SlowToOpen(OsFilesystem):
    """A disk on which opening a log of one topic takes as long as one likes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def open(self, path: str, *, create: bool = False) -> File:
        """Wait, if it is one of that topic's."""
        if "/orders-" in path:
            self.is_reached.set()
            assert self.may_go_on.wait(LIMIT_S)
        return super().open(path, create=create)


class LateMetadata:
    """Metadata that is behind at first, and is known to be current later."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.confirmed: asyncio.Future[MetadataImage] = asyncio.get_running_loop().create_future()
        self.is_told = False
        self._listeners: list[Callable[[MetadataImage], None]] = []

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Tell it of what comes."""
        self._listeners.append(listener)

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Once a quorum has said so."""
        image = await asyncio.shield(self.confirmed)
        self.show(image)
        self.is_told = True
        return image

    def confirm(self, image: MetadataImage) -> None:
        """This is the newest."""
        self.confirmed.set_result(image)

    def show(self, image: MetadataImage) -> None:
        """This comes."""
        self.image = image
        for listener in self._listeners:
            listener(image)


async def _sync(syncs: Sequence[DiskWork]) -> list[OSError | None]:
    for sync in syncs:
        sync.run()
    return [None for _ in syncs]


def hosting(
    host: GroupHost,
    metadata: LateMetadata,
    filesystem: Filesystem,
    directory: str,
    registry: ReplicaRegistry,
) -> tuple[Supervisor, ReplicaManager]:
    """The part that opens and closes the replicas of one broker, in ``directory``."""
    broken = BrokenGroups(filesystem, directory, host.clock)
    logs = LogOpener(filesystem, directory, host.clock, registry, ReplicaProgress.open(filesystem, directory))
    supervisor = Supervisor(host, registry, broken)
    return supervisor, ReplicaManager(host, metadata, supervisor, logs, broken, producer_ids=PRODUCER_IDS)


# requirement: L9
@in_real_time
async def test_a_topic_that_old_metadata_does_not_know_keeps_its_folder(tmp_path: Path) -> None:
    """The broker was killed before its metadata log had noted that the topic's creation was committed."""
    disk, data = SlowToOpen(), str(tmp_path)
    registry = ReplicaRegistry.open(disk, data, random.Random(1))
    begun, _ = applied(SetClusterId("c" * 32, "b" * 32), to=image_of_cluster())
    begun, _ = applied(register(ME, disk_id=registry.disk_id), to=begun)
    old, _ = applied(create("orders", (1,)), to=begun)
    new, _ = applied(create("later", (1,), number=2), to=old)
    kept = [f"{data}/{folder_name(new.topics[name])}/Partition-0" for name in ("orders", "later")]
    for directory in kept:
        SegmentedLog.open(OsFilesystem(), directory, LogSettings(), SystemClock()).close()
        Path(directory, "witness").write_bytes(b"what was here before")
    twin_file.keep(disk, data, APPLIED_FILE, Applied(new.bootstrap_id, new.version))
    fatal: list[BaseException] = []
    clock = SystemClock()
    transport = LoopNetwork(random.Random(1)).transport(ME)
    host = GroupHost(ME, transport, clock, random.Random(1), in_a_task(_sync), on_fatal=fatal.append)
    metadata = LateMetadata(old)
    supervisor, manager = hosting(host, metadata, disk, data, registry)
    await host.start()
    await supervisor.start()
    await manager.start()
    await until(disk.is_reached.is_set, what="the log is opened")
    metadata.confirm(new)
    await until(lambda: metadata.is_told, what="the metadata is current")
    disk.may_go_on.set()
    await until(lambda: ("later", 0) in manager.replicas, what="a replica")
    assert [path for path in kept if not Path(path, "witness").exists()] == []
    await manager.stop()
    await supervisor.stop()
    await host.stop()
    assert fatal == []


# requirement: L9
@pytest.mark.parametrize("log_number", [0, 1])
async def test_a_removed_partition_that_is_added_again_keeps_only_its_own_log(
    tmp_path: Path, log_number: int
) -> None:
    """The broker starts with metadata from before the removal; its folder may be of after the addition."""
    disk, data = OsFilesystem(), str(tmp_path)
    registry = ReplicaRegistry.open(disk, data, random.Random(1))
    begun, _ = applied(SetClusterId("c" * 32, "b" * 32), to=image_of_cluster())
    begun, _ = applied(register(ME, disk_id=registry.disk_id), to=begun)
    old, _ = applied(create("orders", (1,)), to=begun)
    topic = old.topics["orders"]
    again = replace(topic.partitions[0], group_id=GroupId(9), earlier_logs=1)
    new = replace(old, topics={"orders": replace(topic, partitions=(again,))}, version=old.version + 2)
    directory = f"{data}/{folder_name(topic)}/Partition-0"
    SegmentedLog.open(disk, directory, LogSettings(), VirtualClock()).close()
    Path(directory, "witness").write_bytes(b"what was here before")
    if log_number:
        twin_file.keep(disk, data, f"{folder_name(topic)}/Partition-0/{RECOVERY_FILE}", log_number)
    transport = LoopNetwork(random.Random(1)).transport(ME)
    host = GroupHost(ME, transport, VirtualClock(), random.Random(1), in_a_task(_sync), on_fatal=[].append)
    metadata = LateMetadata(old)
    supervisor, manager = hosting(host, metadata, disk, data, registry)
    await host.start()
    await supervisor.start()
    await manager.start()
    await until(lambda: supervisor.state_of(topic.partitions[0].group_id) is not None, what="the replica")
    metadata.confirm(new)
    await until(lambda: ("orders", 0) in manager.replicas and 9 in host.groups, what="the new replica")
    assert Path(directory, "witness").exists() == (log_number == 1)
    assert len(list(tmp_path.glob("trash/*-removed/*/Partition-0/witness"))) == 1 - log_number
    await manager.stop()
    await supervisor.stop()
    await host.stop()


class BusyOnce(FakeFilesystem):
    """A disk that refuses the first move of a folder."""

    has_refused = False

    def rename(self, path: str, target: str) -> None:
        """Refuse it at first."""
        if not self.has_refused:
            self.has_refused = True
            raise OSError(errno.EBUSY, "refused on purpose", path)
        super().rename(path, target)


async def at_once(work: Callable[[], Result]) -> Result:
    return work()


async def test_a_folder_that_could_not_be_moved_is_left_to_the_next_sweep() -> None:
    disk, image = BusyOnce(), image_of_cluster()
    gone = [f"/data/{name}-{32 * name}" for name in ("a", "b")]
    for folder in gone:
        disk.make_directories(folder)
        disk.replace_file(f"{folder}/records", b"records")
    folders = Folders(disk, "/data", at_once, Trash(disk, "/data", VirtualClock(), at_once))
    await folders.note(image)
    await folders.sweep(image)
    assert [disk.exists(folder) for folder in gone] == [True, False]
    assert not folders.is_swept
    await folders.sweep(image)
    assert [disk.exists(folder) for folder in gone] == [False, False]
    assert folders.is_swept
