"""Committed offsets: who may commit which, also in transactions, and when they are deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.coordinators.groups import BrokerGroups
from broker.settings import Groups, QueueSettings
from groups.commits import PENDING_MAX
from groups.coordination import DROPPED_MAX, SWEEP_MS
from groups.ports import Extent, Place
from groups.records import TransactionKey, TransactionOffsets
from groups.requests import (
    AddOffsets,
    Commit,
    DeleteGroup,
    DeleteOffsets,
    Done,
    GroupView,
    Joined,
    OffsetCommit,
    ReadGroup,
)
from groups.state import ROW_BYTES, GroupsState
from partitions.metadata.commands import DeleteTopic
from raftlog.clock import SystemClock
from raftlog.errors import (
    Conflict,
    GroupNotFound,
    InvalidRequest,
    MemberNotFound,
    OffsetsPending,
    ProducerFenced,
    RebalanceInProgress,
    StaleGeneration,
    TransactionAborted,
)
from raftlog.hosting.decisions import RECORDS_PER_BATCH
from raftlog.types import NodeId, TopicPartition
from tests.helpers.async_tests import in_real_time
from tests.helpers.group_coordination import SESSION_MS, CoordinatedGroups
from tests.helpers.instant_groups import are_open
from tests.helpers.metadata_images import applied, cluster, create

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
    groups.commit(MemberNotFound, 5, member="c", generation=generation)
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
    groups.ask(ReadGroup(group="g"), GroupNotFound)
    assert not groups.committed.groups
    assert not groups.committed.offsets
    groups.ask(DeleteGroup(group="g"), GroupNotFound)


def test_offsets_of_topics_that_members_consume_are_not_deleted(groups: CoordinatedGroups) -> None:
    groups.stable("a")
    groups.commit(Done, 5, is_forced=True)
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0),)), Conflict)
    groups.leave("a")
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0), ("orders", 1))), Done)
    assert groups.offset() is None


def test_a_partition_that_is_named_again_and_again_is_written_once(groups: CoordinatedGroups) -> None:
    offsets = tuple(
        OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=offset) for offset in range(100)
    )
    groups.ask(Commit(group="g", offsets=offsets), Done)
    assert len(groups.written[-1]) == 2, "the group and one offset"
    assert groups.offset() == 99, "the last one counts"
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0),) * 100), Done)
    assert len(groups.written[-1]) == 1
    assert groups.offset() is None


def test_groups_in_use_keep_their_offsets_others_expire(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 5)
    session_ms = 100 * SESSION_MS
    generation = groups.stable("a", group="used", session_ms=session_ms)
    groups.commit(Done, 5, group="used", is_forced=True)
    while groups.now_ms < 6 * DAY_MS:
        groups.after(session_ms * 9 // 10)
        groups.beat_quietly("a", generation, group="used")
    assert groups.offset() == 5
    while groups.now_ms < 7 * DAY_MS + 2 * SWEEP_MS:
        groups.after(session_ms * 9 // 10)
        groups.beat_quietly("a", generation, group="used")
    assert groups.offset() is None
    assert groups.offset(group="used") == 5
    assert list(groups.committed.groups) == ["used"]


# requirement: C7
@pytest.mark.parametrize(
    ("extent", "is_kept"),
    [
        (Extent(0, 9), True),  # four records behind it
        (Extent(5, 9), True),
        (Extent(0, 5), True),  # nothing behind it yet: without it all would be read again
        (Extent(6, 9), False),  # its record was deleted
        (Extent(5, 5), False),  # nothing is left
        (None, False),  # the partition was removed, or its topic deleted
    ],
)
def test_an_offset_is_kept_as_long_as_its_record(
    groups: CoordinatedGroups, extent: Extent | None, is_kept: bool
) -> None:
    groups.commit(Done, 5)
    groups.extents[Place("orders", "t1", 0)] = extent
    groups.after(8 * DAY_MS)
    groups.after(8 * DAY_MS)
    assert groups.offset() == (5 if is_kept else None)
    assert groups.tally.groups_expired == (not is_kept)
    groups.extents.clear()
    groups.after(2 * SWEEP_MS)
    assert groups.offset() is None


# requirement: C7
def test_nothing_expires_while_a_log_cannot_be_asked(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 5)
    groups.commit(Done, 5, group="h")
    groups.now_ms = 8 * DAY_MS
    assert groups.coordination.surveyed(("g", "h"), {}, groups.now_ms, groups.wall_ms) == []
    known = {Place("orders", "t1", 0): None}
    assert groups.coordination.surveyed(("g", "h"), known, groups.now_ms, groups.wall_ms) == ["g", "h"]


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


def owners(groups: CoordinatedGroups, group: str) -> dict[int, list[str]]:
    """The members that read each partition of ``orders``."""
    found: dict[int, list[str]] = {partition: [] for partition in range(groups.counts["orders"])}
    for name, member in groups.committed.groups[group].members.items():
        for partition in member.assignment.get("orders", ()):
            found[partition].append(name)
    return found


# requirement: G2
def test_each_group_reads_all_partitions_from_positions_of_its_own() -> None:
    groups = CoordinatedGroups({"orders": 4})
    generation = groups.stable("a", group="audit")
    groups.stable("b", group="billing")
    assert owners(groups, "audit") == {number: ["a"] for number in range(4)}
    assert owners(groups, "billing") == {number: ["b"] for number in range(4)}
    groups.commit(Done, 7, group="audit", member="a", generation=generation)
    assert groups.offset(group="audit") == 7
    assert groups.offset(group="billing") is None


# requirement: G3
def test_each_partition_is_read_by_one_member_of_a_group() -> None:
    groups = CoordinatedGroups({"orders": 7})
    for members in (("a",), ("a", "b"), ("a", "b", "c")):
        name = f"of {len(members)}"
        groups.stable(*members, group=name)
        found = owners(groups, name)
        assert all(len(each) == 1 for each in found.values()), found
        assert {each for (each,) in found.values()} == {*members}


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
    assert groups.written[before + 1 :] == [((TransactionKey("g", 7), None),)], "a repetition has no offsets"


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


# requirement: D3
@pytest.mark.parametrize("end", [4, 5])
def test_an_end_refuses_offsets_whose_transaction_was_open_a_moment_ago(
    groups: CoordinatedGroups, end: int
) -> None:
    """They arrive, their transaction is found open, and its end overtakes that answer."""
    groups.holds_questions = True
    request = groups.send(added(1, epoch=4))
    (question,) = groups.asked
    groups.end(is_commit=True, epoch=3)
    assert request not in groups.answers, "the end of the transaction before came twice"
    groups.end(is_commit=True, epoch=end)
    groups.confirm(question)
    refused = groups.answered(request, ProducerFenced)
    assert refused.details["current_epoch"] == end + 1
    assert (groups.pending(), groups.committed.transactions) == ([], {})


# requirement: D3
def test_offsets_that_an_abort_overtakes_are_told_of_it(groups: CoordinatedGroups) -> None:
    """Their producer goes on: nobody has opened its id."""
    groups.holds_questions = True
    request = groups.send(added(1, epoch=4))
    groups.end(is_commit=False, epoch=4)
    groups.answered(request, TransactionAborted)


# requirement: D3
def test_an_end_finds_offsets_whose_transaction_was_open(groups: CoordinatedGroups) -> None:
    groups.holds_questions = True
    request = groups.send(added(1, epoch=4))
    groups.confirm(groups.asked.pop())
    groups.answered(request, Done)
    groups.ask(added(2, epoch=4), Done)
    assert not groups.asked, "it is known that the end is yet to come"
    groups.end(is_commit=True, epoch=4)
    assert (groups.offset(0), groups.offset(1)) == (1, 1)
    assert groups.committed.transactions == {}


# requirement: D3
def test_who_may_commit_is_seen_once_the_transaction_is_known(groups: CoordinatedGroups) -> None:
    groups.holds_questions = True
    request = groups.send(added(1))
    groups.commit(Done, 5)
    groups.stable("a")
    groups.confirm(groups.asked.pop())
    groups.answered(request, Conflict)
    assert groups.pending() == []


def test_a_caller_that_has_gone_adds_nothing(groups: CoordinatedGroups) -> None:
    groups.holds_questions = True
    request = groups.send(added(1))
    groups.forget(request, added(1))
    groups.confirm(groups.asked.pop())
    assert request not in groups.answers
    assert groups.pending() == []


# requirement: N2
def test_transactions_that_have_ended_keep_nothing() -> None:
    """Neither in groups with offsets nor under names of groups that nobody has made, nor of deleted ones."""
    groups = CoordinatedGroups({"orders": 4}, state_bytes_max=20 * ROW_BYTES)
    for producer in range(100):
        groups.end(is_commit=False, producer=1_000 + producer, group=f"name-{producer}")
        groups.add(Done, producer, producer=producer)
        groups.end(is_commit=True, producer=producer)
    groups.ask(DeleteGroup(group="g"), Done)
    assert (groups.committed.used.total, groups.committed.transactions) == (0, {})
    groups.commit(Done, 5, group="other", client="10.0.0.2")


def test_an_end_proves_that_its_coordinator_leads(groups: CoordinatedGroups) -> None:
    """One that was deposed knows of no offsets; it must not say that they are committed."""
    groups.end(is_commit=True, epoch=4)
    assert groups.written == [((TransactionKey("g", 7), None),)]


def test_an_end_alone_makes_no_group(groups: CoordinatedGroups) -> None:
    groups.end(is_commit=True)
    groups.ask(ReadGroup(group="g"), GroupNotFound)


# requirement: G4
def test_members_add_only_what_they_own(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    mine = owned_by(groups, "a")
    groups.add(Conflict, 5)
    groups.add(MemberNotFound, 5, member="c", generation=generation)
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


def test_nothing_expires_while_no_time_is_trusted(groups: CoordinatedGroups) -> None:
    groups.commit(Done, 5)
    groups.now_ms += 400 * DAY_MS  # by a clock that no other broker confirms
    groups.coordination.tick(groups.now_ms, groups.wall_ms)
    groups.coordination.expire(groups.now_ms, None)
    groups.after(0)
    assert groups.offset() == 5
    groups.after(2 * SWEEP_MS)  # the time is trusted now
    assert groups.offset() is None


def test_offsets_that_wait_do_not_expire(groups: CoordinatedGroups) -> None:
    groups.add(Done, 9)
    groups.after(8 * DAY_MS + SWEEP_MS)
    assert groups.pending() == [(0, 9)]
    groups.end(is_commit=True)
    groups.after(8 * DAY_MS + SWEEP_MS)
    assert not groups.committed.groups
    assert not groups.committed.offsets


def test_fences_of_older_versions_count_until_they_are_deleted_in_steps(groups: CoordinatedGroups) -> None:
    count = 2 * DROPPED_MAX + 1
    for producer in range(count):
        groups.committed.put(TransactionKey("gone", producer), TransactionOffsets(epoch=3))
    groups.fail_over()
    groups.add(Done, 9)
    groups.add(ProducerFenced, 9, epoch=2, group="gone")
    groups.after(SWEEP_MS - 1)
    assert len(groups.committed.transactions["gone"]) == count
    written = len(groups.written)
    groups.after(SWEEP_MS)
    assert [len(rows) for rows in groups.written[written:]] == [DROPPED_MAX, DROPPED_MAX, 1]
    assert groups.committed.transactions.keys() == {"g"}
    assert groups.committed.used.of("gone") == 0
    assert groups.pending() == [(0, 9)]


def added(count: int, metadata: str = "", *, epoch: int = 0) -> AddOffsets:
    """Offsets of the first partitions, each 1."""
    offsets = tuple(
        OffsetCommit(topic="orders", topic_id="t1", partition=number, offset=1, metadata=metadata)
        for number in range(count)
    )
    return AddOffsets(group="g", offsets=offsets, producer_id=7, epoch=epoch, transaction=f"copy-7@7.{epoch}")


def test_one_batch_holds_all_offsets_of_a_transaction(groups: CoordinatedGroups) -> None:
    assert PENDING_MAX + 1 <= RECORDS_PER_BATCH
    refused = groups.ask(added(PENDING_MAX + 1), InvalidRequest)
    assert refused.details["field"] == "offsets"
    groups.ask(added(PENDING_MAX, "m" * 4_096), InvalidRequest)
    groups.ask(added(PENDING_MAX), Done)
    assert isinstance(groups.committed.transactions["g"][7], TransactionOffsets)


@in_real_time
async def test_a_broker_forgets_where_a_deleted_topic_ended() -> None:
    """Topics that are created and deleted again and again would add up for ever."""
    asked: list[str] = []

    async def offset_at(place: TopicPartition, *_: object, **__: object) -> tuple[int, int]:
        asked.append(f"{place.topic}/{place.partition}")
        return 10, 0

    before, _ = applied(create("orders", [1], [1]), create("mails", [1], number=2), to=cluster())
    changed: list[Any] = []
    controller: Any = SimpleNamespace(image=before, subscribe=changed.append)
    gateway: Any = SimpleNamespace(offset_at=offset_at, relay=SimpleNamespace(serve=lambda *_: None))
    groups = BrokerGroups(
        NodeId(1), Groups(), QueueSettings(), controller, gateway, SystemClock(), are_open, lambda: True
    )
    offsets = [groups.offsets.placed("orders", partition, 5, -1, "") for partition in (0, 1)]
    offsets.append(groups.offsets.placed("mails", 0, 5, -1, ""))
    for _ in range(2):
        await groups.offsets.check(offsets)
    assert asked == ["orders/0", "orders/1", "mails/0"], "an end that was seen need not be asked for again"
    deletion = DeleteTopic("orders", topic_id=before.topics["orders"].topic_id)
    controller.image, _ = applied(deletion, to=before)
    for listener in changed:
        listener(controller.image)
    await groups.offsets.check(offsets)
    assert asked[3:] == ["orders/0", "orders/1"]
