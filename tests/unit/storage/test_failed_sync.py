"""A failed sync: what the page cache still shows is not on the disk, and no later sync brings it there."""

from __future__ import annotations

import random

import pytest

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated
from raftlog.node.group.log_changer import LogChanger
from raftlog.storage.log_storage import LogChange, carry_out
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.slots import SLOT_NAMES
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.log_changes import truncate_prefix, truncate_suffix
from raftlog.types import Index, NodeId, Term
from tests.helpers.log_files import append, sync
from tests.helpers.storage_batches import storage_batch
from tests.helpers.synced_logs import log_of, open_log


def started_anew(filesystem: FakeFilesystem) -> SegmentedLog:
    """The process ends, the machine does not."""
    filesystem.restart()
    return open_log(filesystem)


def after_power_loss(filesystem: FakeFilesystem) -> SegmentedLog:
    filesystem.lose_power(random.Random(0))
    return open_log(filesystem)


def vote(log: SegmentedLog) -> HardState:
    return log.restored(Membership(frozenset())).hard_state


# requirement: L9
# fault: a sync that failed leaves pages that only look as if they were on the disk
@pytest.mark.parametrize("batches", [1, 6])
def test_entries_that_are_durable_after_opening_survive_a_power_loss(batches: int) -> None:
    filesystem = FakeFilesystem()
    log = log_of(filesystem, 2)
    append(log, batches)
    filesystem.fails_sync = lambda path: path.endswith(".log")
    with pytest.raises(OSError, match="on purpose"):
        sync(log)
    durable = started_anew(filesystem).durable_index
    assert durable == 1 + batches
    assert after_power_loss(filesystem).last_index == durable


# requirement: L9
@pytest.mark.parametrize("failing", SLOT_NAMES)
def test_a_vote_that_was_found_on_opening_survives_a_power_loss(failing: str) -> None:
    filesystem = FakeFilesystem()
    log = log_of(filesystem, 1)
    filesystem.fails_sync = lambda path: path.endswith(failing)
    try:
        for term in (3, 4):
            log.save_hard_state(HardState(Term(term), NodeId(2)))
            sync(log)
    except OSError:
        pass
    found = vote(started_anew(filesystem))
    assert found.term >= 3
    assert vote(after_power_loss(filesystem)) == found


# requirement: L9
def test_a_cut_whose_sync_failed_is_made_again(filesystem: FakeFilesystem) -> None:
    log = log_of(filesystem, 3)
    filesystem.fails_sync = lambda path: path.endswith(".log")
    with pytest.raises(OSError, match="on purpose"):
        truncate_suffix(log, Index(1))
    log = started_anew(filesystem)
    assert log.last_index == 0
    append(log, 1, epoch=2)
    sync(log)
    log = after_power_loss(filesystem)
    assert log.last_index == 1
    assert log.term_at(Index(1)) == 2


@pytest.mark.parametrize("suffix", [".log", *SLOT_NAMES])
def test_a_cut_whose_sync_failed_is_the_end_of_all_syncs(filesystem: FakeFilesystem, suffix: str) -> None:
    log = log_of(filesystem, 3)
    filesystem.fails_sync = lambda path: path.endswith((suffix, *SLOT_NAMES) if suffix != ".log" else suffix)
    with pytest.raises(OSError, match="on purpose"):
        truncate_suffix(log, Index(1))
    filesystem.fails_sync = lambda path: False
    with pytest.raises(OSError, match="syncs are not retried"):
        truncate_suffix(log, Index(1))
    log.save_hard_state(HardState(Term(5), None))
    with pytest.raises(OSError, match="syncs are not retried"):
        sync(log)
    log.close()  # promises nothing about entries that were cut
    assert started_anew(filesystem).recovery.torn_tail is None


def test_a_log_start_that_cannot_be_saved_keeps_the_segments_and_ends_all_syncs() -> None:
    filesystem = FakeFilesystem()
    log = log_of(filesystem, 9)
    log.save_hard_state(HardState(Term(3), NodeId(1)))
    filesystem.fails_sync = lambda path: True
    with pytest.raises(OSError, match="on purpose"):
        truncate_prefix(log, Index(5))
    filesystem.fails_sync = lambda path: False
    with pytest.raises(OSError, match="syncs are not retried"):
        sync(log)
    assert log.first_index == 0


# requirement: L9
def test_a_sync_promises_nothing_that_an_earlier_one_has_yet_to_bring_to_the_disk() -> None:
    filesystem = FakeFilesystem()
    log = log_of(filesystem, 1)
    append(log, 5)  # into a second segment
    earlier = log.take_sync()
    assert earlier is not None
    append(log, 1)
    sync(log)  # while the earlier one waits for a thread
    filesystem.lose_power(random.Random(1))
    assert open_log(filesystem).last_index == 6


def test_a_close_with_a_checkpoint_waits_for_a_sync_that_was_taken(
    filesystem: FakeFilesystem,
) -> None:
    log = log_of(filesystem, 1)
    append(log, 2)
    assert log.take_sync() is not None
    carry_out(log.close_change((Index(2), b"state")))
    log = after_power_loss(filesystem)
    assert log.load_checkpoint() == (2, b"state")


def test_opening_again_does_not_write_again(filesystem: FakeFilesystem) -> None:
    log = log_of(filesystem, 1)
    append(log, 3)
    started_anew(filesystem)
    before = filesystem.changes
    started_anew(filesystem)
    quiet = filesystem.changes - before
    filesystem = FakeFilesystem()
    log_of(filesystem, 4).close()
    before = filesystem.changes
    started_anew(filesystem)
    assert quiet == filesystem.changes - before


def carried_out(changer: LogChanger) -> None:
    change = changer.begin()
    assert change is not None
    change.run()
    changer.end(None)


async def test_nothing_is_appended_beside_the_second_part_of_a_change() -> None:
    log: SegmentedLog = log_of(FakeFilesystem(), 10)
    changer = LogChanger(log)
    changer.ask(lambda: LogChange(lambda: None, lambda: log.prefix_change(Index(8))))
    first = changer.begin()
    assert first is not None
    first.run()
    log.cut(Index(9))
    changer.end(None)  # the second part is asked for
    carried_out(changer)  # the cut
    assert changer.begin() is not None
    assert log.is_changing
    with pytest.raises(InvariantViolated):
        log.append([storage_batch(9, epoch=2)])
