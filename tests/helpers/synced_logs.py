"""A small log that a test fills and syncs by hand."""

from __future__ import annotations

from raftlog.core.ready import HardState
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

DIRECTORY = "/data/orders-0/Partition-0"
BATCH = len(storage_batch(0).data)
SETTINGS = LogSettings(segment_bytes=4 * BATCH, index_interval_bytes=2 * BATCH)


def open_log(filesystem: FakeFilesystem) -> SegmentedLog:
    filesystem.fails_sync = lambda path: False
    return SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())


def log_of(filesystem: FakeFilesystem, batches: int) -> SegmentedLog:
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(2), NodeId(1)))
    append(log, batches)
    sync(log)
    return log


def append(log: SegmentedLog, batches: int, epoch: int = 1) -> None:
    for _ in range(batches):
        log.append([storage_batch(log.last_index + 1, epoch=epoch)])


def sync(log: SegmentedLog) -> None:
    flush = log.take_sync()
    assert flush is not None
    flush.run()
    log.sync_finished(flush)
