"""When a sync notes how far the log is durable: damage up to there is never taken for a torn tail."""

from __future__ import annotations

from raftlog.core.ready import HardState
from raftlog.hosting.opener import make_durable
from raftlog.storage.durable_state import found_slots, newest_slot
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, Term
from tests.helpers.log_files import DIRECTORY, append, open_log


def a_log(filesystem: FakeFilesystem) -> SegmentedLog:
    """Its vote stands in both slots."""
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(1), None))
    append(log, 1)
    make_durable(log)
    return log


def noted(filesystem: FakeFilesystem) -> int:
    slot = newest_slot(found_slots(filesystem, DIRECTORY))
    assert slot is not None
    return slot.state.durable_index


# requirement: M3
def test_the_first_sync_after_a_tick_notes_the_durable_end_and_so_does_one_that_is_owed() -> None:
    filesystem = FakeFilesystem()
    log = a_log(filesystem)
    for _ in range(2):
        append(log, 1)
        make_durable(log)
    assert (log.durable_index, noted(filesystem), log.owes_end) == (2, 0, True)
    assert log.take_sync() is None, "nothing has changed, and no tick has passed"
    log.tick()
    make_durable(log)
    assert (noted(filesystem), log.owes_end) == (2, False)
    log.tick()
    assert log.take_sync() is None
    append(log, 1)
    make_durable(log)
    assert (noted(filesystem), log.owes_end) == (3, False)


# requirement: M3
def test_a_vote_and_a_close_note_it_at_once(filesystem: FakeFilesystem) -> None:
    log = a_log(filesystem)
    append(log, 2)
    make_durable(log)
    assert noted(filesystem) == 0
    log.save_hard_state(HardState(Term(2), NodeId(1)))
    make_durable(log)
    assert noted(filesystem) == 2
    append(log, 1)
    make_durable(log)
    assert noted(filesystem) == 2, "one sync in two ticks"
    log.close()
    assert noted(filesystem) == 3
