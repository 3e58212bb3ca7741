"""Partitions that were removed, and topics that were created again: rebalances, and offsets that go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from broker.coordinators.groups import ConsumedTopics
from groups.offsets import GroupOffsets
from groups.records import GroupKey
from groups.requests import Done, GroupView, Joined, ReadGroup, Synced
from partitions.metadata.commands import DeleteTopic
from raftlog.clock import SystemClock
from raftlog.errors import RebalanceInProgress
from tests.helpers.group_coordination import CoordinatedGroups
from tests.helpers.metadata_images import applied, cluster, create


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 3})


def rejoined(groups: CoordinatedGroups, generation: int) -> Synced:
    assert groups.must_rejoin("a", generation)
    joined = groups.answered(groups.join("a", generation=generation), Joined)
    return groups.answered(groups.sync("a", joined.generation, is_auto=True), Synced)


def committed(groups: CoordinatedGroups, generation: int, *partitions: int, offset: int = 7) -> None:
    for partition in partitions:
        groups.commit(Done, offset, partition=partition, member="a", generation=generation)


# requirement: F5 G11
def test_the_group_rebalances_over_the_partitions_that_are_left(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.remove_partition("orders", "t1", 1_050)
    assert rejoined(groups, generation).assignment == {"orders": (0, 1)}
    assert [groups.offset(partition) for partition in range(3)] == [7, 7, None]


# requirement: F5 F4 G11
def test_a_later_partition_of_the_number_is_read_from_its_start(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.remove_partition("orders", "t1", 1_050)
    generation = rejoined(groups, generation).generation
    groups.set_partitions("orders", 3)
    synced = rejoined(groups, generation)
    assert synced.assignment == {"orders": (0, 1, 2)}
    assert groups.offset(2) == 1_050


# requirement: F5 F4
def test_a_coordinator_that_has_seen_neither_reads_the_later_partition_from_its_start(
    groups: CoordinatedGroups,
) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.beginnings["t1", 2] = 1_050
    groups.counts["orders"] = 2
    generation = generation_after(groups, generation)
    groups.commit(Done, 7, partition=2, member="", generation=-1, is_forced=True)
    groups.counts["orders"] = 3
    generation_after(groups, generation)
    assert groups.offset(2) == 1_050


def joined_again(groups: CoordinatedGroups, generation: int) -> int:
    """The next generation, with a plan."""
    joined = groups.answered(groups.join("a", generation=generation), Joined)
    groups.answered(groups.sync("a", joined.generation, is_auto=True), Synced)
    return joined.generation


def generation_after(groups: CoordinatedGroups, generation: int) -> int:
    """The members join again at a coordinator that has failed over."""
    groups.fail_over()
    return joined_again(groups, generation)


# requirement: F5 ST2
def test_a_coordinator_with_old_metadata_keeps_offsets_of_a_later_partition(
    groups: CoordinatedGroups,
) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1)
    committed(groups, generation, 2, offset=1_051)
    groups.remove_partition("orders", "t1", 1_050)
    assert groups.offset(2) == 1_051, "it was committed for the later partition, which is not known here yet"


# requirement: F5
def test_offsets_of_another_topic_of_the_name_stay(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.topic_ids["orders"] = "t2"
    generation = generation_after(groups, generation)
    groups.commit(Done, 7, partition=2, member="a", generation=generation, topic_id="t2")
    groups.remove_partition("orders", "t1", 1_050)
    assert groups.offset(2) == 7


# requirement: F5
def test_a_new_coordinator_drops_offsets_that_the_one_before_has_left(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    committed(groups, generation, 0, 1, 2)
    groups.beginnings["t1", 2] = 1_050
    groups.counts["orders"] = 2
    groups.fail_over()
    groups.join("a", generation=generation)
    assert groups.offset(2) is None


# requirement: G4 G11
def test_a_member_commits_no_position_of_the_old_topic_for_the_new_one(groups: CoordinatedGroups) -> None:
    """The broker that takes the commit gives it the id of the topic that has the name now."""
    generation = groups.stable("a")
    groups.commit(Done, 3, member="a", generation=generation)
    refused = groups.commit(RebalanceInProgress, 5, topic_id="t2", member="a", generation=generation)
    assert "topic orders was created again after generation 1" in str(refused)
    groups.add(RebalanceInProgress, 5, topic_id="t2", member="a", generation=generation)
    groups.create_again("orders", "t2")
    groups.commit(RebalanceInProgress, 5, topic_id="t2", member="a", generation=generation)
    assert groups.pending() == []
    assert groups.committed.offsets["g"]["orders", 0].topic_id == "t1"
    generation = joined_again(groups, generation)
    groups.commit(Done, 1, topic_id="t2", member="a", generation=generation)
    groups.commit(RebalanceInProgress, 5, topic_id="t1", member="a", generation=generation)
    assert groups.offset() == 1


# requirement: G11
@pytest.mark.parametrize("fails_over", [False, True])
def test_the_group_rebalances_although_there_are_as_many_partitions(
    groups: CoordinatedGroups, fails_over: bool
) -> None:
    generation = groups.stable("a")
    if fails_over:
        groups.topic_ids["orders"] = "t2"
        groups.fail_over()
    else:
        groups.create_again("orders", "t2")
    assert groups.must_rejoin("a", generation)
    generation = joined_again(groups, generation)
    assert groups.committed.groups["g"].rebalances[-1].reason == "topic orders was created again"
    assert not groups.must_rejoin("a", generation)


# requirement: ST2
def test_a_generation_that_an_older_version_wrote_goes_on(groups: CoordinatedGroups) -> None:
    """The generation does not know the ids: until the next, nobody joins again and no commit is refused."""
    generation = groups.stable("a")
    written = groups.committed.groups["g"]
    assert written.topic_ids == {"orders": "t1"}
    groups.committed.put(GroupKey("g"), msgspec.structs.replace(written, topic_ids={}))
    groups.fail_over()
    assert not groups.must_rejoin("a", generation)
    groups.commit(Done, 3, member="a", generation=generation)
    groups.commit(Done, 1, topic_id="t2", member="a", generation=generation)
    joined_again(groups, generation)
    assert groups.committed.groups["g"].topic_ids == {"orders": "t1"}


# requirement: G11
def test_a_topic_that_was_created_again_between_two_images_is_noticed() -> None:
    before, _ = applied(create("orders", [1], number=1), to=cluster())
    controller: Any = SimpleNamespace(image=before)
    topics = ConsumedTopics(controller, cast("Any", None))
    old = topics.known.topic_ids["orders"]
    assert not topics.take(before)
    after, _ = applied(
        DeleteTopic("orders", topic_id=before.topics["orders"].topic_id),
        create("orders", [1], number=2),
        to=before,
    )
    assert topics.take(after) == {"orders"}
    assert topics.known.topic_ids["orders"] == after.topics["orders"].topic_id != old


# requirement: G4
def test_a_broker_that_lags_shows_members_of_the_new_topic_no_offsets_of_the_old_one(
    groups: CoordinatedGroups,
) -> None:
    """Else they would begin there, and commit it for the new topic."""
    generation = groups.stable("a")
    groups.commit(Done, 3, member="a", generation=generation)
    groups.create_again("orders", "t2")
    joined_again(groups, generation)

    async def shown(*existing: str) -> list[tuple[str, int]]:
        async def ask(request: ReadGroup, *, timeout_ms: int) -> GroupView:
            return groups.ask(request, GroupView)

        async def exists(topic: str, topic_id: str) -> bool:
            return topic_id in existing

        service, topics = cast("Any", SimpleNamespace(ask=ask)), cast("Any", SimpleNamespace(exists=exists))
        view = await GroupOffsets(service, topics, SystemClock()).view("g", timeout_ms=1_000)
        return [(committed.topic_id, committed.offset) for _, _, committed in view.offsets]

    assert asyncio.run(shown("t1")) == []
    groups.commit(Done, 1, topic_id="t2", is_forced=True)
    assert asyncio.run(shown("t1")) == []
    assert asyncio.run(shown("t2")) == [("t2", 1)]
    groups.leave("a")
    groups.commit(Done, 2, topic_id="t3")
    assert asyncio.run(shown("t3")) == [("t3", 2)], "nobody has begun with another one"
