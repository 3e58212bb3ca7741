"""The system calls of the real filesystem, judged: they must make true what the port promises."""

from __future__ import annotations

import errno
import gc
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from partitions.values import QUORUM
from raftlog.core.ready import HardState
from raftlog.storage.log_storage import LogStorage
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_suffix
from raftlog.types import Index, Term, TopicPartition
from tests.conformance.filesystem_suite import FilesystemSuite, Place
from tests.conformance.log_suite import SETTINGS as LOG_SETTINGS
from tests.conformance.log_suite import LogSuite
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.orders import batch_of
from tests.helpers.storage_batches import storage_batch
from verification.disk_calls.checked import CheckedDisk, checked_disk

SETTINGS = LogSettings(segment_bytes=2000)
SHORT = 0.4


@pytest.fixture
def disk() -> Iterator[CheckedDisk]:
    """Nothing may be broken or left open in the end."""
    with checked_disk(1, SHORT) as checked:
        yield checked
        gc.collect()  # files that nobody holds close themselves
        assert checked.posix.violations == []
        assert checked.open_files() == []


# requirement: L9
class TestOperations(FilesystemSuite):
    """Every operation of the suite is made of calls that keep its promise."""

    @pytest.fixture
    def place(self, disk: CheckedDisk, tmp_path: Path) -> Place:
        return disk.filesystem, str(tmp_path)


# requirement: L9
class TestLog(LogSuite):
    """So is everything that a log does."""

    @pytest.fixture
    def log(self, disk: CheckedDisk, tmp_path: Path) -> Iterator[LogStorage]:
        opened = SegmentedLog.open(disk.filesystem, f"{tmp_path}/log", LOG_SETTINGS, ManualWallClock())
        opened.save_hard_state(HardState(Term(9), None))
        yield opened
        opened.close()


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_a_replacement_is_durable_when_it_returns(size: int, disk: CheckedDisk, tmp_path: Path) -> None:
    for number in range(3):
        disk.filesystem.replace_file(f"{tmp_path}/a", bytes([number]) * size)
    assert disk.posix.durable_files()[f"{tmp_path}/a"] == bytes([2]) * size


def test_what_a_dead_process_left_of_a_replacement_is_no_part_of_the_next(
    disk: CheckedDisk, tmp_path: Path
) -> None:
    (tmp_path / "a.tmp").write_bytes(b"half of what was to be there")
    disk.filesystem.replace_file(f"{tmp_path}/a", b"new")


@pytest.mark.parametrize("call", ["open", "pwrite", "fdatasync", "replace", "fsync"])
def test_a_replacement_that_fails_anywhere_leaves_the_old_file_or_the_new_one(
    call: str, disk: CheckedDisk, tmp_path: Path
) -> None:
    disk.filesystem.replace_file(f"{tmp_path}/a", b"old")
    disk.interference.failing[call] = [errno.EIO]
    with pytest.raises(OSError, match="fails on purpose"):
        disk.filesystem.replace_file(f"{tmp_path}/a", b"new")
    assert (
        disk.posix.durable_files()[f"{tmp_path}/a"] == b"old"
    )  # by name: a sync of the directory is to come
    disk.filesystem.replace_file(f"{tmp_path}/a", b"newer")


@pytest.mark.parametrize("succeeding", [0, 1, 2])
def test_an_append_that_meets_a_full_disk_leaves_the_file_as_it_was(
    succeeding: int, disk: CheckedDisk, tmp_path: Path
) -> None:
    file = disk.filesystem.open(f"{tmp_path}/a", create=True)
    failed = 0
    for _ in range(30):
        disk.interference.failing["pwritev"] = [*(0 for _ in range(succeeding)), errno.ENOSPC]
        try:
            file.append([b"x" * 100, b"y" * 100])
        except OSError:
            failed += 1
        disk.interference.failing.clear()
        file.append([b"it goes on"])
    assert failed > 0
    file.close()


# requirement: L9
def test_a_directory_whose_maker_died_before_its_sync_is_named_durably(
    disk: CheckedDisk, tmp_path: Path
) -> None:
    disk.system.mkdir(f"{tmp_path}/topic")
    disk.filesystem.make_directories(f"{tmp_path}/topic/partition")
    disk.system.mkdir(f"{tmp_path}/other")
    disk.filesystem.make_directories(f"{tmp_path}/other")


def test_a_directory_is_made_again_after_its_removal(disk: CheckedDisk, tmp_path: Path) -> None:
    for _ in range(2):
        disk.filesystem.make_directories(f"{tmp_path}/topic/partition")
        disk.filesystem.remove_tree(f"{tmp_path}/topic")
    disk.filesystem.make_directories(f"{tmp_path}/topic/partition")


def test_a_failed_sync_is_told_and_not_tried_again(disk: CheckedDisk, tmp_path: Path) -> None:
    file = disk.filesystem.open(f"{tmp_path}/a", create=True)
    file.append([b"bytes"])
    disk.interference.failing["fdatasync"] = [errno.EIO]
    with pytest.raises(OSError, match="EIO"):
        file.sync()
    disk.interference.failing["fsync"] = [errno.EIO]
    with pytest.raises(OSError, match="EIO"):
        disk.filesystem.sync_directory(str(tmp_path))
    file.close()


# requirement: L9
@pytest.mark.parametrize("seed", range(3))
def test_what_a_log_calls_durable_is_there_after_a_power_loss(
    seed: int, disk: CheckedDisk, tmp_path: Path
) -> None:
    """The calls' own minimum, at every sync: what they have made durable opens, and has all of it."""
    rng, directory = Random(seed), f"{tmp_path}/log"
    log = SegmentedLog.open(disk.filesystem, directory, SETTINGS, ManualWallClock())
    for term in range(1, 60):
        log.save_hard_state(HardState(Term(term), None))
        for _ in range(rng.randint(0, 6)):
            log.append(
                [storage_batch(log.last_index + 1, 3, epoch=term, body=rng.randbytes(rng.choice((40, 400))))]
            )
        if rng.random() < 0.2 and log.last_index > log.durable_index + 3:
            truncate_suffix(log, Index(log.durable_index + 1))
        flush = log.take_sync()
        if flush is not None:
            flush.run()
            log.sync_finished(flush)
        assert_survives(disk, directory, log.durable_index, term)
        if rng.random() < 0.1:
            log.close()
            log = SegmentedLog.open(disk.filesystem, directory, SETTINGS, ManualWallClock())
    log.close()


def assert_survives(disk: CheckedDisk, directory: str, durable: int, term: int) -> None:
    files = FakeFilesystem()
    files.load(disk.posix.durable_files())
    after = SegmentedLog.open(files, directory, SETTINGS, ManualWallClock())
    assert after.last_index >= durable
    assert after._state.state.hard_state.term == term
    after.close()


# requirement: L9
async def test_so_is_everything_that_brokers_do_under_load(disk: CheckedDisk, tmp_path: Path) -> None:
    cluster = ControlledCluster(str(tmp_path))
    for node in cluster.nodes:
        await cluster.start(node, disk.filesystem)
    await cluster.registered()
    await cluster.create("orders", partitions=2, segment_bytes=4096)
    for number in range(60):
        target = TopicPartition("orders", number % 2)
        data = batch_of(b"%d" % number * 40)
        await cluster.any.gateway.append(target, data, acks=QUORUM, timeout_ms=5000)
    await cluster.any.controller.delete_topic("orders", expected_version=None, timeout_ms=5000)
    for node in list(cluster.brokers):
        await cluster.stop(node)
    assert disk.posix.calls > 500


def test_a_call_that_the_model_does_not_know_is_refused(disk: CheckedDisk) -> None:
    from raftlog.storage import os_filesystem

    with pytest.raises(AttributeError, match=r"os\.sendfile is unknown to the trace"):
        os_filesystem.os.sendfile(1, 2, 0, 1)
