"""A log of small segments on the real file system, which a child process opens, too."""

from __future__ import annotations

from raftlog.clock import SystemClock
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog

SETTINGS = LogSettings(segment_bytes=20_000)


def open_log(directory: str) -> SegmentedLog:
    return SegmentedLog.open(OsFilesystem(), directory, SETTINGS, SystemClock())
