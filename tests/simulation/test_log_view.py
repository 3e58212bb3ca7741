"""The judge's own look at a replica's files: where a log begins, and what stands in it."""

from __future__ import annotations

import random

import pytest

from raftlog.core.ready import HardState
from raftlog.storage.log_storage import carry_out
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import Index, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch
from verification.simulator.log_view import LogView

BATCH = len(storage_batch(0).data)


def synced_log(disk: FakeFilesystem, batches: int) -> SegmentedLog:
    """A log of so many batches of one offset each, four in a segment, all on the disk."""
    settings = LogSettings(segment_bytes=4 * BATCH, segment_ms=1000, index_interval_bytes=BATCH)
    log = SegmentedLog.open(disk, "/log", settings, ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    log.append([storage_batch(base) for base in range(batches)])
    sync = log.take_sync()
    assert sync is not None
    sync.run()
    log.sync_finished(sync)
    return log


# requirement: L9
def test_a_log_begins_where_its_slot_says_although_its_files_are_still_there() -> None:
    disk = FakeFilesystem()
    log = synced_log(disk, 12)
    views = [LogView(disk, "/log", durable=durable) for durable in (False, True)]
    for view in views:
        assert view.refresh() == 0
        assert (view.start, view.last) == (0, 11)
    carry_out(log.prefix_change(Index(8)))
    assert "/log/00000000000000000000.log" in disk.paths()
    for view in views:
        view.refresh()
        assert (view.start, view.last) == (log.first_index, 11) == (8, 11)


def test_the_newest_batch_up_to_an_index() -> None:
    disk = FakeFilesystem()
    synced_log(disk, 3)
    view = LogView(disk, "/log", durable=True)
    view.refresh()
    assert view.newest_up_to(-1) is None
    assert [found.base for index in (0, 1, 9) if (found := view.newest_up_to(index))] == [0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_a_view_that_follows_changes_equals_a_new_one(seed: int) -> None:
    rng = random.Random(seed)
    disk = FakeFilesystem()
    disk.make_directories("/log")
    views = [LogView(disk, "/log", durable=durable) for durable in (False, True)]
    for _ in range(200):
        _change(disk, views[0].last + 1, rng)
        for view, durable in zip(views, (False, True), strict=True):
            view.refresh()
            new = LogView(disk, "/log", durable=durable)
            new.refresh()
            assert (view.start, view.entries) == (new.start, new.entries)


def _change(disk: FakeFilesystem, following: int, rng: random.Random) -> None:
    paths = disk.paths()
    what = rng.choice(
        ("append",) * 8 + ("roll", "roll", "sync", "sync", "names", "names", "cut", "remove", "power")
    )
    if not paths or what == "roll":
        disk.open(f"/log/{following:020}.log", create=True)
    elif what == "append":
        disk.open(paths[-1]).append([storage_batch(following).data])
    elif what == "sync":
        disk.open(rng.choice(paths)).sync()
    elif what == "names":
        disk.sync_directory("/log")
    elif what == "cut":
        file = disk.open(paths[-1])
        file.truncate(rng.randint(0, file.size))
    elif what == "remove":
        disk.remove(rng.choice((paths[0], paths[-1])))
        disk.sync_directory("/log")  # before anything else is appended, as a log does
    else:
        disk.lose_power(rng)
