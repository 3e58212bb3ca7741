"""Offsets of a group in transactions: what is kept aside, what an end makes of it, and what waits for it."""

from __future__ import annotations

import pytest

from groups.commits import PENDING_MAX
from groups.coordination import SWEEP_MS
from groups.records import TransactionOffsets
from groups.requests import AddOffsets, DeleteGroup, DeleteOffsets, Done, Joined, OffsetCommit, ReadGroup
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    OffsetsPending,
    ProducerFenced,
    StaleGeneration,
    UnknownGroup,
    UnknownMember,
)
from raftlog.hosting.decisions import RECORDS_PER_BATCH
from tests.helpers.group_coordination import CoordinatedGroups

DAY_MS = 86_400_000


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4}, offsets_retention_ms=7 * DAY_MS)


def owned_by(groups: CoordinatedGroups, member: str) -> int:
    """One of the member's partitions."""
    return groups.committed.groups["g"].members[member].assignment["orders"][0]


# requirement: D3
def test_offsets_count_with_the_commit_and_not_before(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 3)
    groups.add(Done, 9)
    groups.add(Done, 5, partition=1)
    assert (groups.offset(), groups.offset(1)) == (3, None)
    assert groups.pending() == [(0, 9), (1, 5)]
    groups.end(is_commit=True)
    assert (groups.offset(), groups.offset(1)) == (9, 5)
    assert groups.pending() == []


# requirement: D3
def test_an_abort_drops_them(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 3)
    groups.add(Done, 9)
    groups.end(is_commit=False)
    assert groups.offset() == 3
    assert groups.pending() == []
    groups.end(is_commit=True)
    assert groups.offset() == 3, "the end came twice"


def test_the_end_is_one_write(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    groups.add(Done, 5, partition=1)
    before = len(groups.written)
    groups.end(is_commit=True)
    assert len(groups.written) == before + 1
    groups.end(is_commit=True)
    assert len(groups.written) == before + 1, "a repetition writes nothing"


# requirement: D3
def test_an_end_fences_offsets_that_arrive_late(groups: CoordinatedGroups) -> None:
    groups.end(is_commit=True, epoch=4)
    refused = groups.add(ProducerFenced, 9, epoch=4)
    assert refused.details["current_epoch"] == 5
    groups.add(Done, 9, epoch=5)
    groups.end(is_commit=True, epoch=4)
    assert groups.pending() == [(0, 9)], "the end of the transaction before came twice"
    groups.add(Done, 9, producer=8, partition=1)
    groups.end(is_commit=True, epoch=5)
    groups.add(ProducerFenced, 9, epoch=5)
    assert (groups.offset(), groups.pending()) == (9, [(1, 9)])


def test_an_end_alone_makes_no_group(groups: CoordinatedGroups) -> None:
    groups.end(is_commit=True)
    groups.ask(ReadGroup(group="g"), UnknownGroup)


# requirement: G4
def test_members_add_only_what_they_own(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    mine = owned_by(groups, "a")
    groups.add(Conflict, 5)
    groups.add(UnknownMember, 5, member="c", generation=generation)
    groups.add(StaleGeneration, 5, member="a", generation=generation - 1, partition=mine)
    theirs = owned_by(groups, "b")
    refused = groups.add(InvalidRequest, 5, member="a", generation=generation, partition=theirs)
    assert refused.details["field"] == "offsets"
    assert groups.pending() == []
    groups.add(Done, 5, member="a", generation=generation, partition=mine)
    assert groups.pending() == [(mine, 5)]


# requirement: D3
def test_a_commit_counts_after_a_rebalance(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.add(Done, 5, member="a", generation=generation)
    waiting = groups.join("b")
    groups.join("a", generation=generation)
    groups.answered(waiting, Joined)
    groups.add(StaleGeneration, 6, member="a", generation=generation)
    groups.end(is_commit=True)
    assert groups.offset() == 5
    assert groups.committed.offsets["g"]["orders", 0].generation == generation


def test_a_late_offset_takes_none_back(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.commit(Done, 4, member="a", generation=generation)
    groups.add(Done, 3, member="a", generation=generation)
    assert groups.pending() == []
    groups.add(Done, 9, member="a", generation=generation)
    groups.add(Done, 5, member="a", generation=generation)
    assert groups.pending() == [(0, 9)]
    groups.end(is_commit=True)
    groups.add(Done, 5, member="a", generation=generation, epoch=1)
    groups.end(is_commit=True, epoch=1)
    assert groups.offset() == 9


def test_a_late_offset_takes_none_back_in_a_group_without_members(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    groups.add(Done, 5)
    assert groups.pending() == [(0, 9)]
    groups.add(Done, 5, topic_id="t2")
    assert groups.pending() == [(0, 5)], "of a topic that was created again"


# requirement: D3
def test_a_partition_takes_offsets_of_one_transaction_at_a_time(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    refused = groups.commit(OffsetsPending, 4)
    assert refused.details["transaction"] == "copy-7@7.0"
    groups.commit(OffsetsPending, 4, is_forced=True)
    groups.add(OffsetsPending, 4, producer=8)
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0),)), OffsetsPending)
    groups.commit(Done, 4, partition=1)
    groups.end(is_commit=True)
    groups.commit(Done, 12)
    groups.add(Done, 14, producer=8)
    assert groups.offset() == 12


def test_a_row_whose_end_was_lost_gives_way_to_the_next_transaction(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    groups.add(Done, 5, partition=1, epoch=1)
    assert groups.pending() == [(1, 5)]
    groups.end(is_commit=True, epoch=2)
    assert (groups.offset(), groups.offset(1)) == (None, None)


# requirement: ST2
def test_what_waits_survives_a_fail_over(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    groups.end(is_commit=True, producer=8, epoch=3)
    groups.fail_over()
    assert groups.pending() == [(0, 9)]
    groups.commit(OffsetsPending, 4)
    groups.add(ProducerFenced, 9, producer=8, epoch=3, partition=1)
    groups.end(is_commit=True)
    assert groups.offset() == 9


def test_a_group_is_not_deleted_while_offsets_wait(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    refused = groups.ask(DeleteGroup(group="g"), Conflict)
    assert "copy-7@7.0" in str(refused)
    groups.end(is_commit=True)
    groups.ask(DeleteGroup(group="g"), Done)
    groups.add(ProducerFenced, 9)  # it would wait for ever


def test_fences_expire_and_offsets_that_wait_do_not(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    groups.end(is_commit=False, producer=8)
    groups.after(8 * DAY_MS + SWEEP_MS)
    assert groups.pending() == [(0, 9)]
    assert list(groups.committed.transactions["g"]) == [7]
    groups.end(is_commit=True)
    groups.after(8 * DAY_MS + SWEEP_MS)
    assert not groups.committed.groups
    assert not groups.committed.offsets
    assert not groups.committed.transactions


def test_one_batch_holds_all_offsets_of_a_transaction(groups: CoordinatedGroups) -> None:
    def added(count: int, metadata: str = "") -> AddOffsets:
        offsets = tuple(
            OffsetCommit(topic="orders", topic_id="t1", partition=number, offset=1, metadata=metadata)
            for number in range(count)
        )
        return AddOffsets(group="g", offsets=offsets, producer_id=7, epoch=0, transaction="copy-7@7.0")

    assert PENDING_MAX + 1 <= RECORDS_PER_BATCH
    refused = groups.ask(added(PENDING_MAX + 1), InvalidRequest)
    assert refused.details["field"] == "offsets"
    groups.ask(added(PENDING_MAX, "m" * 4_096), InvalidRequest)
    groups.ask(added(PENDING_MAX), Done)
    assert isinstance(groups.committed.transactions["g"][7], TransactionOffsets)
