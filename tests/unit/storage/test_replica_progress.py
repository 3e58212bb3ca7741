"""Notes of how far replicas had got: what is behind one, and what of the notes survives."""

from __future__ import annotations

import random

import pytest

from raftlog.clock import SystemClock
from raftlog.core.membership import NOBODY
from raftlog.core.ready import HardState
from raftlog.hosting.opener import make_durable
from raftlog.storage.replica_progress import PROGRESS_FILE, Progress, ReplicaProgress, progress_of
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import EntryId, GroupId, Index, NodeId, Term
from tests.helpers.storage_batches import storage_batch

DATA = "/data"
FIVE, SIX = GroupId(5), GroupId(6)
ONE, TWO = NodeId(1), NodeId(2)


def a_log(filesystem: FakeFilesystem) -> SegmentedLog:
    return SegmentedLog.open(filesystem, f"{DATA}/log", LogSettings(), SystemClock())


def filled(filesystem: FakeFilesystem) -> SegmentedLog:
    """Entries 0 to 4 of term 3, in which it has voted for broker 1."""
    log = a_log(filesystem)
    log.save_hard_state(HardState(Term(3), ONE))
    log.append([storage_batch(index, epoch=3) for index in range(5)])
    make_durable(log)
    return log


def note(term: int, voted_for: NodeId | None, entry_term: int, index: int) -> Progress:
    return Progress(Term(term), voted_for, EntryId(Term(entry_term), Index(index)), is_only=False)


# requirement: F6
@pytest.mark.parametrize(
    ("noted", "lost"),
    [
        (note(3, ONE, 3, 4), ""),
        (note(3, None, 3, 2), ""),
        (note(2, TWO, 0, -1), ""),
        (note(4, None, 3, 4), "knows term 3, and had known term 4"),
        (note(3, TWO, 3, 4), "had voted for broker 2 in term 3"),
        (note(3, ONE, 3, 5), "ends at 4, and had entry 5 of term 3"),
        (note(3, ONE, 2, 4), "ends at 4, and had entry 4 of term 2"),
    ],
)
def test_a_log_without_what_was_noted_is_an_older_copy(noted: Progress, lost: str) -> None:
    assert lost in noted.missing_in(filled(FakeFilesystem()))
    assert bool(noted.missing_in(filled(FakeFilesystem()))) == bool(lost)


def test_an_entry_that_was_deleted_since_is_not_missing() -> None:
    log = filled(FakeFilesystem())
    log.install(EntryId(Term(3), Index(9)), NOBODY, b"")
    assert note(3, ONE, 3, 4).missing_in(log) == ""
    assert note(3, ONE, 3, 9).missing_in(log) == ""
    assert "ends at 9" in note(3, ONE, 2, 9).missing_in(log)


# requirement: F6
def test_only_what_is_durable_and_committed_is_noted(filesystem: FakeFilesystem) -> None:
    log = filled(filesystem)
    log.append([storage_batch(5, epoch=3)])
    log.save_hard_state(HardState(Term(4), TWO))
    assert progress_of(log, Index(5), is_only=True) == Progress(
        Term(3), ONE, EntryId(Term(3), Index(4)), is_only=True
    )
    assert progress_of(log, Index(2), is_only=False) == note(3, ONE, 3, 2)
    make_durable(log)
    noted = progress_of(log, Index(5), is_only=False)
    assert noted == note(4, TWO, 3, 5)
    filesystem.lose_power(random.Random(1))
    assert noted.missing_in(a_log(filesystem)) == ""


def test_an_empty_log_notes_the_entry_before_it() -> None:
    log = a_log(FakeFilesystem())
    assert progress_of(log, Index(-1), is_only=False) == note(0, None, 0, -1)


# requirement: F6
def test_notes_survive_and_go_with_their_groups(filesystem: FakeFilesystem) -> None:
    filesystem.make_directories(DATA)
    progress = ReplicaProgress.open(filesystem, DATA)
    progress.keep({FIVE: note(1, None, 1, 1), SIX: note(1, None, 1, 2)}, {FIVE, SIX})
    progress.keep({FIVE: note(2, ONE, 2, 8)}, {FIVE, SIX})
    filesystem.lose_power(random.Random(1))
    again = ReplicaProgress.open(filesystem, DATA)
    assert (again.of(FIVE), again.of(SIX)) == (note(2, ONE, 2, 8), note(1, None, 1, 2))
    again.keep({}, {SIX})
    assert (again.of(FIVE), again.of(SIX)) == (None, note(1, None, 1, 2))
    assert ReplicaProgress.open(filesystem, DATA).of(FIVE) is None


def test_a_note_that_could_not_be_written_is_none(filesystem: FakeFilesystem) -> None:
    filesystem.make_directories(DATA)
    progress = ReplicaProgress.open(filesystem, DATA)
    filesystem.capacity_bytes = 0
    with pytest.raises(OSError, match="no room"):
        progress.keep({FIVE: note(1, None, 1, 1)}, {FIVE})
    assert progress.of(FIVE) is None


def test_damaged_notes_notice_nothing_and_are_written_again(caplog: pytest.LogCaptureFixture) -> None:
    filesystem = FakeFilesystem()
    filesystem.make_directories(DATA)
    ReplicaProgress.open(filesystem, DATA).keep({FIVE: note(1, None, 1, 1)}, {FIVE})
    for ending in "", ".twin":
        filesystem.overwrite(f"{DATA}/{PROGRESS_FILE}{ending}", b"garbage")
    progress = ReplicaProgress.open(filesystem, DATA)
    assert progress.of(FIVE) is None
    assert "older copies of replicas cannot be noticed" in caplog.text
    progress.keep({FIVE: note(2, None, 1, 1)}, {FIVE})
    assert ReplicaProgress.open(filesystem, DATA).of(FIVE) == note(2, None, 1, 1)
