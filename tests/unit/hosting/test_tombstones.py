"""Which tombstones may be removed, from what the members of a group say."""

from __future__ import annotations

from raftlog.hosting.tombstones import Agreement, Clean, old_enough
from raftlog.storage.retention import ClosedSegment
from raftlog.types import Index, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def said(*ends: int, opening: int = 7) -> dict[NodeId, Clean | None]:
    return {NodeId(number): Clean(opening, end) for number, end in enumerate(ends, 1)}


def test_all_members_must_be_clean_at_two_looks() -> None:
    agreement = Agreement()
    assert agreement.heard(said(10, 20, 30)) == 0
    assert agreement.heard(said(25, 25, 30)) == 10
    assert agreement.heard(said(25, 25, 30)) == 25


def test_a_member_that_does_not_answer_holds_everything_back() -> None:
    agreement = Agreement()
    agreement.heard(said(10, 20, 30))
    for _ in range(3):
        assert agreement.heard({**said(10, 20, 30), TWO: None}) == 0
    assert agreement.heard(said(10, 20, 30)) == 0
    assert agreement.heard(said(10, 20, 30)) == 10


def test_a_log_that_was_opened_between_two_looks_counts_from_the_next_on() -> None:
    agreement = Agreement()
    agreement.heard(said(10, 20, 30))
    reopened = {**said(10, 20, 30), THREE: Clean(8, 30)}
    assert agreement.heard(reopened) == 0
    assert agreement.heard(reopened) == 10


def test_another_member_counts_from_the_next_look_on() -> None:
    agreement = Agreement()
    agreement.heard(said(10, 20))
    assert agreement.heard(said(10, 20, 0)) == 0
    assert agreement.heard(said(10, 20, 5)) == 0
    assert agreement.heard(said(10, 20, 5)) == 5


def test_what_was_agreed_stays_agreed() -> None:
    agreement = Agreement()
    for _ in range(2):
        agreement.heard(said(10, 20, 30))
    assert agreement.heard({ONE: None, TWO: None, THREE: None}) == 10
    for _ in range(3):
        assert agreement.heard(said(0, 0, 0, opening=9)) == 10


def segment(last: int, stored_ms: int) -> ClosedSegment:
    return ClosedSegment(Index(last - 9), Index(last), 100, stored_ms, stored_ms)


def test_only_old_segments_count_and_none_behind_a_young_one() -> None:
    closed = [segment(9, 100), segment(19, 200), segment(29, 900), segment(39, 150)]
    assert old_enough(closed, 1000, 500) == 20
    assert old_enough(closed, 1000, 10) == 40
    assert old_enough(closed, 1000, 900) == 0
    assert old_enough(closed, None, 500) == 0
    assert old_enough([], 1000, 0) == 0
