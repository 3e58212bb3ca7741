"""A small log of term 2 on a disk whose syncs may fail."""

from __future__ import annotations

from raftlog.core.ready import HardState
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, Term
from tests.helpers.log_files import BATCH, DIRECTORY, append, sync
from tests.helpers.manual_wall_clock import ManualWallClock

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
