"""A small log on a disk in memory, and the bytes of its files."""

from __future__ import annotations

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.storage.log_storage import LogStorage, ReadableLog
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import FIRST_INDEX, Index, NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

DIRECTORY = "/data/orders-0/Partition-0"


BATCH = len(storage_batch(0).data)


SETTINGS = LogSettings(segment_bytes=8 * BATCH, index_interval_bytes=2 * BATCH)


NOBODY = Membership(frozenset())


def open_log(filesystem: FakeFilesystem) -> SegmentedLog:
    return SegmentedLog.open(filesystem, DIRECTORY, SETTINGS, ManualWallClock())


def log_with(filesystem: FakeFilesystem, batches: int, *, epoch: int = 1) -> SegmentedLog:
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(epoch), NodeId(1)))
    append(log, batches, epoch=epoch)
    sync(log)
    return log


def append(log: SegmentedLog, batches: int, *, epoch: int = 1) -> None:
    for _ in range(batches):
        log.append([storage_batch(log.last_index + 1, epoch=epoch)])


def sync(log: LogStorage) -> None:
    """There is something to sync, which is durable afterwards."""
    flush = log.take_sync()
    assert flush is not None
    flush.run()
    log.sync_finished(flush)


def sync_written(log: LogStorage) -> None:
    """All that was written is durable; there may be nothing to sync."""
    flush = log.take_sync()
    if flush is not None:
        flush.run()
        log.sync_finished(flush)


def index_at_time(
    log: ReadableLog, timestamp_ms: int, first: Index = FIRST_INDEX
) -> tuple[Index, int] | None:
    """See ``LogReader.index_at_time``: of the whole log, segment by segment."""
    while (part := log.part_at_time(timestamp_ms, first)) is not None:
        found = part.index_at_time(timestamp_ms, first)
        if found is not None:
            return found
        first = Index(part.last_index + 1)
    return None


def segment(base: int, suffix: str = "log") -> str:
    return f"{DIRECTORY}/{base:020d}.{suffix}"


def write_raw(filesystem: FakeFilesystem, path: str, position: int, data: bytes) -> None:
    file = filesystem.open(path)
    file.write_at(position, data)
    file.sync()
    file.close()
