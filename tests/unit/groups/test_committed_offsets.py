"""What may be committed, by whom, and when it is deleted."""

from __future__ import annotations

import pytest

from groups.coordination import SWEEP_MS
from groups.requests import DeleteGroup, DeleteOffsets, Done, GroupView, Joined, ReadGroup
from groups.state import GroupsState
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    RebalanceInProgress,
    StaleGeneration,
    UnknownGroup,
    UnknownMember,
)
from tests.helpers.group_coordination import SESSION_MS, CoordinatedGroups

DAY_MS = 86_400_000


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4}, offsets_retention_ms=7 * DAY_MS)


def test_a_group_without_members_takes_commits_of_anybody(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 43)
    assert groups.offset() == 43
    view = groups.ask(ReadGroup(group="g"), GroupView)
    assert [(topic, number, each.offset) for topic, number, each in view.offsets] == [("orders", 0, 43)]


# requirement: G1
def test_offsets_are_kept_by_group_topic_and_partition(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 1)
    groups.commit(Done, 2, partition=1)
    groups.commit(Done, 3, topic="payments")
    groups.commit(Done, 4, group="other")
    found = [groups.offset(), groups.offset(1), groups.offset(topic="payments"), groups.offset(group="other")]
    assert found == [1, 2, 3, 4]


# requirement: G4
def test_only_members_commit_and_only_what_they_own(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    groups.commit(Conflict, 5)
    groups.commit(UnknownMember, 5, member="c", generation=generation)
    groups.commit(StaleGeneration, 5, member="a", generation=generation - 1)
    members = groups.committed.groups["g"].members
    owner = next(each for each, member in members.items() if 0 in member.assignment["orders"])
    other = next(each for each in members if each != owner)
    refused = groups.commit(InvalidRequest, 5, member=other, generation=generation)
    assert "orders/0" in str(refused)
    groups.commit(Done, 5, member=owner, generation=generation)
    assert groups.offset() == 5


def test_a_member_commits_until_the_next_generation_begins(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    waiting = groups.join("b")
    groups.commit(Done, 5, member="a", generation=generation)
    groups.join("a", generation=generation)
    groups.answered(waiting, Joined)
    groups.commit(StaleGeneration, 6, member="a", generation=generation)
    groups.commit(RebalanceInProgress, 6, member="a", generation=generation + 1)
    assert groups.offset() == 5


def test_a_late_commit_does_not_take_an_offset_back(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.commit(Done, 9, member="a", generation=generation)
    groups.commit(Done, 5, member="a", generation=generation)
    assert groups.offset() == 9
    groups.commit(Done, 5, member="a", generation=generation, may_rewind=True)
    assert groups.offset() == 5


def test_a_topic_that_was_created_again_begins_below(groups: CoordinatedGroups) -> None:
    groups.topic_ids.clear()  # as in a generation of an older version
    generation = groups.stable("a")
    groups.commit(Done, 9, member="a", generation=generation)
    groups.commit(Done, 0, member="a", generation=generation, topic_id="t2")
    assert groups.offset() == 0


def test_a_commit_is_a_sign_of_life(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    for offset in range(4):
        groups.after(SESSION_MS - 1)
        groups.commit(Done, offset, member="a", generation=generation)


def test_an_operator_commits_for_a_group_in_use(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.commit(Done, 5, is_forced=True)
    assert groups.offset() == 5


# requirement: ST2
def test_offsets_survive_a_fail_over(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.commit(Done, 9, member="a", generation=generation)
    groups.fail_over()
    assert groups.offset() == 9
    groups.commit(Done, 10, member="a", generation=generation)


def test_groups_are_deleted_without_members_only(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.commit(Done, 5, is_forced=True)
    groups.ask(DeleteGroup(group="g"), Conflict)
    groups.leave("a")
    groups.ask(DeleteGroup(group="g"), Done)
    groups.ask(ReadGroup(group="g"), UnknownGroup)
    assert not groups.committed.groups
    assert not groups.committed.offsets
    groups.ask(DeleteGroup(group="g"), UnknownGroup)


def test_offsets_of_topics_that_members_consume_are_not_deleted(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.commit(Done, 5, is_forced=True)
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0),)), Conflict)
    groups.leave("a")
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0), ("orders", 1))), Done)
    assert groups.offset() is None


def test_groups_in_use_keep_their_offsets_others_expire(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 5)
    generation = groups.stable("a", group="used")
    groups.commit(Done, 5, group="used", is_forced=True)
    while groups.now_ms < 6 * DAY_MS:
        groups.after(SESSION_MS * 9 // 10)
        groups.beat_quietly("a", generation, group="used")
    assert groups.offset() == 5
    while groups.now_ms < 7 * DAY_MS + 2 * SWEEP_MS:
        groups.after(SESSION_MS * 9 // 10)
        groups.beat_quietly("a", generation, group="used")
    assert groups.offset() is None
    assert groups.offset(group="used") == 5
    assert list(groups.committed.groups) == ["used"]


def test_a_snapshot_restores_the_same_state(groups: CoordinatedGroups) -> None:
    groups.stable("a", "b")
    groups.commit(Done, 5, is_forced=True)
    copy = GroupsState()
    copy.restore(groups.committed.snapshot())
    assert copy.groups == groups.committed.groups
    assert copy.offsets == groups.committed.offsets
    assert copy.snapshot() == groups.committed.snapshot()
    copy.restore(b"")
    assert not copy.groups
