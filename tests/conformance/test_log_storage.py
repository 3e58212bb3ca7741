"""The logs that pass the suite: segment files on both filesystems, and the log in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raftlog.core.ready import HardState
from raftlog.storage.log_storage import LogStorage, carry_out
from raftlog.storage.os_filesystem import OsFilesystem
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Term
from tests.conformance.log_suite import SETTINGS, LogSuite
from tests.helpers.manual_wall_clock import ManualWallClock


def on_disk(tmp_path: Path) -> LogStorage:
    return SegmentedLog.open(OsFilesystem(), f"{tmp_path}/log", SETTINGS, ManualWallClock())


def on_fake_disk(tmp_path: Path) -> LogStorage:
    return SegmentedLog.open(FakeFilesystem(), "/log", SETTINGS, ManualWallClock())


def in_memory(tmp_path: Path) -> LogStorage:
    return MemoryLog(segment_batches=8)


@pytest.fixture(params=[on_disk, on_fake_disk, in_memory], ids=["os", "fake", "memory"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogStorage]:
    make: Callable[[Path], LogStorage] = request.param
    opened = make(tmp_path)
    opened.save_hard_state(HardState(Term(9), None))
    yield opened
    carry_out(opened.close_change(None))


class TestLogs(LogSuite):
    """All three."""
