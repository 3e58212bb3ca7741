"""How many files of active segments are open, and which of them may be closed between their uses."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from raftlog.clock import SystemClock
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.log_changes import truncate_suffix
from raftlog.types import Index, Term
from tests.helpers.storage_batches import storage_batch

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc")


def open_logs(
    directory: Path, count: int, held_max: int, *, segment_bytes: int = 1 << 20
) -> list[SegmentedLog]:
    filesystem = OsFilesystem(held_max)
    settings = LogSettings(segment_bytes=segment_bytes)
    logs = []
    for number in range(count):
        log = SegmentedLog.open(filesystem, f"{directory}/log-{number}", settings, SystemClock())
        log.save_hard_state(HardState(Term(1), None))
        logs.append(log)
    return logs


def open_below(directory: Path) -> list[str]:
    """The files below a directory that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return [path for path in found if path.startswith(f"{directory}/")]


def sync(log: SegmentedLog) -> None:
    work = log.take_sync()
    assert work is not None
    work.run()
    log.sync_finished(work)
    assert log.durable_index == log.last_index


def test_idle_logs_share_few_open_files(tmp_path: Path) -> None:
    logs = open_logs(tmp_path, 20, held_max=4)
    assert len(open_below(tmp_path)) <= 4
    for offset in range(3):
        for log in logs:
            log.append([storage_batch(offset)])
            sync(log)
    assert len(open_below(tmp_path)) <= 4
    for log in logs:
        assert log.read(Index(0), Index(2), bytes_max=1 << 20).read() == b"".join(
            storage_batch(offset).data for offset in range(3)
        )
    assert len(open_below(tmp_path)) <= 4
    for log in logs:
        log.close()
    assert open_below(tmp_path) == []
    assert [log.last_index for log in open_logs(tmp_path, 20, held_max=4)] == [2] * 20


def test_file_with_unsynced_writes_stays_open(tmp_path: Path) -> None:
    first, second, third = open_logs(tmp_path, 3, held_max=2)
    first.append([storage_batch(0)])
    second.append([storage_batch(0)])
    assert len(open_below(tmp_path)) == 2
    with pytest.raises(OSError, match="wait for a sync") as refused:
        third.append([storage_batch(0)])
    assert refused.value.errno == errno.EMFILE
    assert third.last_index == -1
    sync(first)
    third.append([storage_batch(0)])
    assert sorted(map(os.path.dirname, open_below(tmp_path))) == [f"{tmp_path}/log-1", f"{tmp_path}/log-2"]
    sync(second)
    sync(third)


def test_file_of_a_sync_that_was_taken_stays_open(tmp_path: Path) -> None:
    first, second = open_logs(tmp_path, 2, held_max=1)
    first.append([storage_batch(0)])
    work = first.take_sync()
    assert work is not None
    with pytest.raises(OSError, match="wait for a sync"):
        second.append([storage_batch(0)])
    work.run()
    first.sync_finished(work)
    del work
    second.append([storage_batch(0)])
    sync(second)


def test_reads_go_on_while_all_files_wait_for_syncs(tmp_path: Path) -> None:
    first, second = open_logs(tmp_path, 2, held_max=1)
    second.append([storage_batch(0)])
    sync(second)
    first.append([storage_batch(0)])
    assert second.read(Index(0), Index(0), bytes_max=100).read() == storage_batch(0).data


def test_cuts_and_rolls_of_logs_whose_files_were_closed(tmp_path: Path) -> None:
    logs = open_logs(tmp_path, 3, held_max=1, segment_bytes=200)
    for offset in range(6):
        for log in logs:
            log.append([storage_batch(offset)])
            sync(log)
    for log in logs:
        assert len(log.closed_segments) == 1
        truncate_suffix(log, Index(2))  # in the closed one
        log.append([storage_batch(2)])
        sync(log)
        assert log.read(Index(0), Index(2), bytes_max=1 << 20).last >= 0
    assert len(open_below(tmp_path)) <= 1
    for log in logs:
        log.close()
    assert [log.last_index for log in open_logs(tmp_path, 3, held_max=1)] == [2] * 3


def test_log_that_cannot_be_opened_holds_no_file(tmp_path: Path) -> None:
    [log] = open_logs(tmp_path, 1, held_max=8)
    log.append([storage_batch(0), storage_batch(1)])
    sync(log)
    log.close()
    path = next((tmp_path / "log-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    with pytest.raises(LogCorrupt):
        open_logs(tmp_path, 1, held_max=8)
    gc.collect()  # the error's traceback
    assert open_below(tmp_path) == []


def test_active_file_that_was_removed_while_closed_is_corruption(tmp_path: Path) -> None:
    first, second = open_logs(tmp_path, 2, held_max=1)
    first.append([storage_batch(0)])
    sync(first)
    second.append([storage_batch(0)])
    sync(second)
    next((tmp_path / "log-0").glob("*.log")).unlink()
    with pytest.raises(LogCorrupt, match="the file is missing"):
        first.append([storage_batch(1)])
