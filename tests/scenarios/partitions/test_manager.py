"""The replicas of each broker are those that the metadata says, on real files."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from partitions.hosting.applied_metadata import APPLIED_FILE, Applied
from partitions.hosting.directories import folder_name
from partitions.hosting.trash import TRASH_FOLDER
from raftlog.errors import NoLeader, RecordTooLarge
from raftlog.storage import twin_file
from raftlog.storage.filesystem import File
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.replica_registry import REPLICAS_FILE
from raftlog.testing.unsynced_filesystem import UnsyncedFilesystem
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.metadata_images import applied, create
from tests.helpers.metadata_images import cluster as image_of_cluster
from tests.helpers.orders import batch_of
from tests.helpers.virtual_time import eventually


def folders(tmp_path: Path, broker: int) -> set[str]:
    found = {path.name for path in (tmp_path / f"broker-{broker}").iterdir() if path.is_dir()}
    return found - {"__metadata", TRASH_FOLDER}


# requirement: L3, ST6, RP1
@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path), brokers=4))
async def test_replicas_are_in_folders_of_the_topics_id(cluster: ControlledCluster, tmp_path: Path) -> None:
    topic = await cluster.create("orders", partitions=4)
    for broker in cluster.brokers.values():
        placed = {p.partition for p in topic.partitions if broker.node_id in p.replicas}
        assert set(broker.manager.replicas) == {("orders", partition) for partition in placed}
        directory = tmp_path / f"broker-{broker.node_id}" / f"orders-{topic.topic_id}"
        assert {path.name for path in directory.iterdir()} == {f"Partition-{n}" for n in placed}


# requirement: T3
@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_the_preferred_replica_of_a_new_partition_leads_it(cluster: ControlledCluster) -> None:
    topic = await cluster.create("orders", partitions=6)
    for partition in topic.partitions:
        led = await cluster.leader(partition=partition.partition)
        assert led.node_id == partition.replicas[0]


@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_a_deleted_topic_leaves_nothing(cluster: ControlledCluster, tmp_path: Path) -> None:
    first = await cluster.create("orders")
    assert (await (await cluster.leader()).append(batch_of(b"old"))).base_offset == 0
    await cluster.delete("orders")
    for node, broker in cluster.brokers.items():
        assert folders(tmp_path, node) == set()
        assert broker.manager.replicas == {}
    second = await cluster.create("orders")
    assert folders(tmp_path, 1) == {folder_name(second)} != {folder_name(first)}
    assert (await (await cluster.leader()).append(batch_of(b"new"))).base_offset == 0


@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_a_broker_that_was_down_removes_a_topic(cluster: ControlledCluster, tmp_path: Path) -> None:
    topic = await cluster.create("orders")
    await cluster.stop(NodeId(3))
    await cluster.any.controller.delete_topic("orders", expected_version=None, timeout_ms=5000)
    # Half of a deletion that a power loss interrupted, of a topic that was created meanwhile.
    half = tmp_path / "broker-3" / f"other-{'ab' * 16}" / "Partition-0"
    half.mkdir(parents=True)
    assert folder_name(topic) in folders(tmp_path, 3)
    await cluster.start(NodeId(3))
    await eventually(lambda: folders(tmp_path, 3) == set())
    assert cluster.brokers[NodeId(3)].manager.failures == {}


async def test_without_confirmed_metadata_nothing_is_removed(tmp_path: Path) -> None:
    leftover = tmp_path / "broker-1" / f"other-{'ab' * 16}" / "Partition-0"
    leftover.mkdir(parents=True)
    cluster = ControlledCluster(str(tmp_path))
    alone = await cluster.start(NodeId(1))  # no quorum, an empty image
    with pytest.raises(NoLeader):
        await alone.controller.current_image(200)
    assert leftover.exists()
    await cluster.start(NodeId(2))
    await eventually(lambda: not leftover.exists())
    for node in list(cluster.brokers):
        await cluster.stop(node)


async def test_without_confirmed_metadata_no_replica_begins_with_nothing(tmp_path: Path) -> None:
    """Its topic may have been deleted, and its vote with it: only old metadata still names it."""
    cluster = ControlledCluster(str(tmp_path))
    async with cluster:
        topic = await cluster.create("orders")
    folder = tmp_path / "broker-3" / folder_name(topic)
    shutil.rmtree(folder)
    alone = await cluster.start(NodeId(3))  # it remembers the topic, and no quorum says whether it lives
    await eventually(lambda: ("orders", 0) in alone.manager.failures)
    assert "confirmed" in alone.manager.failures["orders", 0]
    assert not folder.exists()
    assert alone.manager.replicas == {}
    await cluster.start(NodeId(1))
    await eventually(lambda: ("orders", 0) in alone.manager.replicas)
    for node in list(cluster.brokers):
        await cluster.stop(node)


async def test_metadata_that_began_from_nothing_removes_no_folders_of_an_earlier_life(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "broker-1" / f"other-{'ab' * 16}" / "Partition-0"
    kept.mkdir(parents=True)
    twin_file.keep(OsFilesystem(), str(tmp_path / "broker-1"), APPLIED_FILE, Applied("f" * 32, 0))
    async with ControlledCluster(str(tmp_path)) as cluster:
        await cluster.create("orders")
        await eventually(lambda: "this broker deletes no folder" in caplog.text)
        assert kept.exists()


async def test_a_disk_that_is_full_at_the_first_sweep_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.hosting.replica_manager.SWEEP_AGAIN_S", 0.01)
    refused: list[str] = []

    class FullAtFirst(UnsyncedFilesystem):
        def replace_file(self, path: str, data: bytes) -> None:
            if path.endswith(APPLIED_FILE) and len(refused) < 2:
                refused.append(path)
                raise OSError(errno.ENOSPC, "no room on purpose", path)
            super().replace_file(path, data)

    async with ControlledCluster(str(tmp_path)) as cluster:
        await eventually((tmp_path / "broker-1" / f"{APPLIED_FILE}.twin").exists)
        await cluster.stop(NodeId(1))
        for file in (tmp_path / "broker-1").glob(f"{APPLIED_FILE}*"):
            file.unlink()
        broker = await cluster.start(NodeId(1), FullAtFirst())
        await eventually((tmp_path / "broker-1" / APPLIED_FILE).exists)
        assert len(refused) == 2
        assert broker.fatal == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_a_replica_that_found_no_room_when_it_opened_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr("raftlog.hosting.supervisor.OPEN_AGAIN_S", 0.01)

    class Full(UnsyncedFilesystem):
        is_full = True

        def open(self, path: str, *, create: bool = False) -> File:
            if create and self.is_full and "orders-" in path:
                raise OSError(number, "no room on purpose", path)
            return super().open(path, create=create)

    async with ControlledCluster(str(tmp_path)) as cluster:
        await cluster.stop(NodeId(1))
        disk = Full()
        broker = await cluster.start(NodeId(1), disk)
        await cluster.create("orders")
        await eventually(lambda: "no room" in broker.manager.failures.get(("orders", 0), ""))
        disk.is_full = False
        await eventually(lambda: ("orders", 0) in broker.manager.replicas)
        assert broker.manager.failures == {}


async def test_metadata_that_cannot_be_followed_for_lack_of_descriptors_is_followed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.hosting.replica_manager.FOLLOW_AGAIN_S", 0.01)

    class Short(UnsyncedFilesystem):
        refused = 0

        def list_directory(self, path: str) -> list[str]:
            if "orders-" in path and self.refused < 3:
                self.refused += 1
                raise OSError(errno.EMFILE, "too many on purpose", path)
            return super().list_directory(path)

    async with ControlledCluster(str(tmp_path)) as cluster:
        await cluster.stop(NodeId(1))
        disk = Short()
        broker = await cluster.start(NodeId(1), disk)
        await cluster.create("orders")
        await eventually(lambda: ("orders", 0) in broker.manager.replicas)
        assert disk.refused == 3
        assert broker.fatal == []


async def test_a_replica_takes_no_part_before_the_registry_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it votes, loses its files with the power, and passes for one that never voted."""
    monkeypatch.setattr("raftlog.hosting.supervisor.OPEN_AGAIN_S", 0.01)

    class Full(UnsyncedFilesystem):
        is_full = False
        has_refused = False

        def replace_file(self, path: str, data: bytes) -> None:
            if self.is_full and path.endswith(f"/{REPLICAS_FILE}"):
                self.has_refused = True
                raise OSError(errno.ENOSPC, "no room on purpose", path)
            super().replace_file(path, data)

    async with ControlledCluster(str(tmp_path)) as cluster:
        await cluster.stop(NodeId(1))
        disk = Full()
        broker = await cluster.start(NodeId(1), disk)
        disk.is_full = True
        topic = await cluster.create("orders")
        await eventually(lambda: disk.has_refused)
        assert topic.partitions[0].group_id not in broker.host.groups
        disk.is_full = False
        await eventually(lambda: ("orders", 0) in broker.manager.replicas)
        assert broker.manager.failures == {}


async def test_files_that_are_no_topics_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "notes-of-mine").mkdir(parents=True)
    gone = tmp_path / "broker-1" / f"other-{'ab' * 16}"
    gone.mkdir()
    async with ControlledCluster(str(tmp_path), brokers=1):
        await eventually(lambda: not gone.exists())
        assert folders(tmp_path, 1) == {"notes-of-mine"}


@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_a_new_configuration_reaches_replicas_that_are_open(cluster: ControlledCluster) -> None:
    await cluster.create("orders")
    await (await cluster.leader()).append(batch_of(b"x" * 2000))
    await cluster.configure("orders", {"max.message.bytes": 1024})
    with pytest.raises(RecordTooLarge):
        await (await cluster.leader()).append(batch_of(b"x" * 2000))


# requirement: RT3, RT4
@in_virtual_time_with(lambda tmp_path: ControlledCluster(str(tmp_path)))
async def test_old_segments_go_on_every_replica(cluster: ControlledCluster) -> None:
    await cluster.create("orders", segment_bytes=1024, retention_bytes=2048)
    for _ in range(10):
        await (await cluster.leader()).append(batch_of(b"x" * 500))
    await eventually(lambda: all(broker.orders.group.commit_index >= 9 for broker in cluster))
    await cluster.look_for_retention()
    starts = [broker.orders.group.log.first_index for broker in cluster]
    led = (await cluster.leader()).orders
    assert led.log_start_offset == min(starts) > 0
    assert led.group.log.size_bytes <= 2048 + 1024
    assert (
        await (await cluster.leader()).append(batch_of(b"y"))
    ).base_offset == 11  # 10 is the log start's own entry


def test_the_folder_of_the_longest_name_is_a_name_that_filesystems_take(tmp_path: Path) -> None:
    image, _ = applied(create("x" * 249, (1,)), to=image_of_cluster())
    topic = image.topics["x" * 249]
    name = folder_name(topic)
    assert len(name) == 255
    assert name.endswith(f"-{topic.topic_id}")
    (tmp_path / name).mkdir()
