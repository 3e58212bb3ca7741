"""Join, leave, crash and change of partitions, in the order that the protocol promises."""

from __future__ import annotations

from dataclasses import replace

import pytest

from groups.coordination import KNOWN_SPARE
from groups.requests import Beat, DeleteOffsets, Done, Heartbeat, Joined, Sync, Synced
from raftlog.errors import (
    Conflict,
    GroupNotFound,
    InvalidRequest,
    MemberNotFound,
    RebalanceInProgress,
    StaleGeneration,
)
from raftlog.records.tags import TagSelection
from tests.helpers.group_coordination import REBALANCE_MS, SESSION_MS, CoordinatedGroups

COOPERATIVE = ("cooperative-sticky",)


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4, "payments": 2})


# requirement: G8 G13
def test_join_in_the_exact_order(groups: CoordinatedGroups) -> None:
    alone = groups.answered(groups.join("a"), Joined)  # (1) A alone, has all partitions, heartbeats
    assert (alone.generation, alone.leader) == (1, "a")
    everything = groups.answered(groups.sync("a", 1, {"a": {"orders": (0, 1, 2, 3)}}), Synced)
    assert everything.assignment == {"orders": (0, 1, 2, 3)}
    assert not groups.must_rejoin("a", 1)
    joining_b = groups.join("b")  # (2) B sends join
    assert joining_b not in groups.answers
    assert groups.must_rejoin("a", 1)  # (3) the answer to A's next heartbeat
    joining_a = groups.join("a", generation=1)
    a, b = groups.answered(joining_a, Joined), groups.answered(joining_b, Joined)  # (4) all have rejoined
    assert a.generation == b.generation == 2
    assert a.leader == b.leader
    leader, follower = (a, b) if a.leader == "a" else (b, a)
    assert {info.member_id for info in leader.members} == {"a", "b"}
    assert not follower.members
    asking = groups.sync(follower.member_id, 2)  # (5) followers ask; the leader has not brought the plan
    assert asking not in groups.answers
    plan = {leader.member_id: {"orders": (0, 1)}, follower.member_id: {"orders": (2, 3)}}
    own = groups.answered(groups.sync(leader.member_id, 2, plan), Synced)
    assert own.assignment == {"orders": (0, 1)}
    assert groups.answered(asking, Synced).assignment == {"orders": (2, 3)}  # (6) all start
    assert not groups.must_rejoin("a", 2)
    assert not groups.must_rejoin("b", 2)


# requirement: N2
def test_members_that_come_and_go_leave_no_times(groups: CoordinatedGroups) -> None:
    for number in range(2 * KNOWN_SPARE):
        groups.answered(groups.join(f"m{number}"), Joined)
        groups.answered(groups.leave(f"m{number}"), Done)
        groups.after(0)
        groups.coordination.expire(groups.now_ms, None)  # with each request, as at a coordinator
    assert len(groups.coordination.known_until) <= KNOWN_SPARE + 2


# requirement: G9
def test_after_a_leave_the_others_are_told_at_their_next_heartbeat(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    groups.answered(groups.leave("a"), Done)
    assert groups.must_rejoin("b", generation)
    joined = groups.answered(groups.join("b", generation=generation), Joined)
    assert (joined.generation, joined.leader) == (generation + 1, "b")
    assigned = groups.answered(groups.sync("b", generation + 1, is_auto=True), Synced)
    assert assigned.assignment == {"orders": (0, 1, 2, 3)}


# requirement: G10
def test_a_member_that_is_silent_for_its_session_is_dead(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    for _ in range(4):
        groups.after(SESSION_MS // 4)
        if groups.now_ms < SESSION_MS:
            assert not groups.must_rejoin("b", generation)
    assert groups.must_rejoin("b", generation), "the session of a has ended"
    groups.beat("a", generation, MemberNotFound)
    assert groups.answered(groups.join("b", generation=generation), Joined).generation == generation + 1


# requirement: G11
def test_other_partitions_cause_a_rebalance(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.set_partitions("payments", 7)
    assert not groups.must_rejoin("a", generation), "nobody has subscribed to it"
    groups.set_partitions("orders", 6)
    assert groups.must_rejoin("a", generation)
    groups.answered(groups.join("a", generation=generation), Joined)
    plan = groups.answered(groups.sync("a", generation + 1, is_auto=True), Synced)
    assert plan.assignment == {"orders": (0, 1, 2, 3, 4, 5)}
    (*_, newest) = groups.committed.groups["g"].rebalances
    assert "orders" in newest.reason


def test_partitions_that_change_during_a_rebalance_cause_the_next_one(groups: CoordinatedGroups) -> None:
    groups.answered(groups.join("a"), Joined)
    groups.set_partitions("orders", 5)
    groups.answered(groups.sync("a", 1, {"a": {"orders": (0, 1, 2, 3)}}), Synced)
    assert groups.must_rejoin("a", 1)


# requirement: G12
def test_a_leader_is_chosen_whenever_the_members_change(groups: CoordinatedGroups) -> None:
    leaders = []
    generation = groups.stable("a", "b", "c")
    for member in ("d", "e", "f"):
        groups.join(member)
        for known in list(groups.committed.groups["g"].members):
            groups.join(known, generation=generation)
        group = groups.committed.groups["g"]
        assert group.leader in group.members
        leaders.append(group.leader)
        generation = group.generation
        groups.ask(Sync(group="g", member_id=group.leader, generation=generation, is_auto=True), Synced)
    assert len(set(leaders)) > 1


# requirement: G5
def test_more_members_than_partitions_leave_some_idle(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b", "c", "d", "e", "f")
    assigned = [member.assignment for member in groups.committed.groups["g"].members.values()]
    assert sorted(len(each.get("orders", ())) for each in assigned) == [0, 0, 1, 1, 1, 1]
    assert not groups.must_rejoin("f", generation)


# requirement: G15
def test_a_rebalance_of_one_group_is_unknown_to_another(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    other = groups.stable("x", group="other")
    groups.leave("a")
    assert groups.must_rejoin("b", generation)
    assert not groups.beat("x", other, Beat, group="other").must_rejoin
    assert groups.committed.groups["other"].generation == other


def test_a_waiting_heartbeat_is_answered_when_a_rebalance_begins(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    waiting = groups.send(Heartbeat(group="g", member_id="a", generation=generation, wait_ms=3_000))
    groups.after(1_000)
    assert waiting not in groups.answers
    groups.join("b")
    assert groups.answered(waiting, Beat).must_rejoin


def test_a_waiting_heartbeat_prolongs_the_session_at_its_end(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    for _ in range(4):
        waiting = groups.send(
            Heartbeat(group="g", member_id="a", generation=generation, wait_ms=10 * SESSION_MS)
        )
        groups.after(SESSION_MS)
        assert not groups.answered(waiting, Beat).must_rejoin


def test_a_repeated_join_gets_the_lost_answer(groups: CoordinatedGroups) -> None:
    first = groups.answered(groups.join("a"), Joined)
    assert groups.answered(groups.join("a"), Joined) == first
    groups.sync("a", 1, is_auto=True)
    assert groups.answered(groups.join("a"), Joined) == first
    assert not groups.must_rejoin("a", 1), "no rebalance came of it"


def test_a_join_that_knows_the_generation_asks_for_the_next(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    groups.join("a", generation=generation)
    assert groups.must_rejoin("b", generation)


def test_another_subscription_causes_a_rebalance(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    groups.join("a", "orders", "payments")
    assert groups.must_rejoin("b", generation)


def test_a_join_repeated_while_it_waits_is_answered_both_times(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    first, second = groups.join("b"), groups.join("b")
    groups.join("a", generation=generation)
    assert groups.answered(first, Joined) == groups.answered(second, Joined)
    assert set(groups.committed.groups["g"].members) == {"a", "b"}


def test_members_that_do_not_join_again_in_time_are_left_behind(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    joining = groups.join("c")
    for _ in range(REBALANCE_MS // 5_000):
        assert joining not in groups.answers
        groups.beat("a", generation, Beat)  # alive, and too busy to join
        groups.beat("b", generation, Beat)
        groups.after(5_000)
    assert groups.answered(joining, Joined).generation == generation + 1
    assert set(groups.committed.groups["g"].members) == {"c"}
    groups.beat("a", generation, MemberNotFound)


def test_a_leader_without_a_plan_is_removed(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    waiting = groups.join("b")
    groups.join("a", generation=generation)
    joined = groups.answered(waiting, Joined)
    other = "b" if joined.leader == "a" else "a"
    asking = groups.sync(other, joined.generation)
    for _ in range(REBALANCE_MS // 5_000):
        groups.beat("a", joined.generation, Beat)
        groups.beat("b", joined.generation, Beat)
        groups.after(5_000)
    groups.answered(asking, RebalanceInProgress)
    again = groups.answered(groups.join(other, generation=joined.generation), Joined)
    assert again.leader == other


def test_followers_that_wait_for_a_plan_join_again_when_another_joins(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    waiting = groups.join("b")
    groups.join("a", generation=generation)
    joined = groups.answered(waiting, Joined)
    other = "b" if joined.leader == "a" else "a"
    asking = groups.sync(other, joined.generation)
    groups.join("c")
    groups.answered(asking, RebalanceInProgress)


def test_requests_of_an_earlier_generation_are_fenced(groups: CoordinatedGroups) -> None:
    before = groups.stable("a")
    waiting = groups.join("b")
    groups.join("a", generation=before)
    groups.answered(waiting, Joined)
    stale = groups.beat("a", before, StaleGeneration)
    assert stale.details["current"] == before + 1
    groups.answered(groups.sync("a", before), StaleGeneration)


def test_unknown_groups_and_members_are_refused(groups: CoordinatedGroups) -> None:
    groups.beat("a", 1, GroupNotFound)
    groups.stable("a")
    groups.beat("nobody", 1, MemberNotFound)
    groups.answered(groups.leave("nobody"), Done)


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({"a": {"orders": (0, 1, 2, 3, 3)}}, "orders/3"),
        ({"a": {"orders": (0, 1, 2)}}, "orders/3"),
        ({"a": {"orders": (0, 1, 2, 3, 4)}}, "orders/4"),
        ({"a": {"orders": (0, 1, 2, 3), "payments": (0,)}}, "payments/0"),
        ({"a": {"orders": (0, 1, 2)}, "gone": {"orders": (3,)}}, "gone"),
    ],
)
def test_plans_that_do_not_fit_are_refused(
    groups: CoordinatedGroups, plan: dict[str, dict[str, tuple[int, ...]]], named: str
) -> None:
    groups.join("a")
    refused = groups.answered(groups.sync("a", 1, plan), InvalidRequest)
    assert named in str(refused)
    assert not groups.committed.groups["g"].has_plan
    groups.answered(groups.sync("a", 1, {"a": {"orders": (0, 1, 2, 3)}}), Synced)


def test_a_cooperative_plan_takes_nothing_from_a_member_that_may_still_read_it(
    groups: CoordinatedGroups,
) -> None:
    groups.join("a", strategies=COOPERATIVE)
    groups.answered(groups.sync("a", 1, is_auto=True), Synced)
    groups.join("b", strategies=COOPERATIVE)
    groups.join("a", generation=1, strategies=COOPERATIVE)
    leader = groups.committed.groups["g"].leader
    moved = {"a": {"orders": (0, 1)}, "b": {"orders": (2, 3)}}
    refused = groups.answered(groups.sync(leader, 2, moved), InvalidRequest)
    assert "withhold" in str(refused)
    groups.answered(groups.sync(leader, 2, {"a": {"orders": (0, 1)}, "b": {}}), Synced)


def test_members_need_a_strategy_in_common(groups: CoordinatedGroups) -> None:
    groups.answered(groups.join("a", strategies=("range", "mine")), Joined)
    refused = groups.answered(groups.join("b", strategies=("sticky",)), InvalidRequest)
    assert "mine, range" in str(refused)
    assert groups.join("b", strategies=("sticky", "mine")) not in groups.answers
    joined = groups.answered(groups.join("a", strategies=("range", "mine"), generation=1), Joined)
    assert joined.strategy == "mine"


# requirement: A1, A2, A10
def test_all_members_read_the_same_tags(groups: CoordinatedGroups) -> None:
    """Offsets are committed over what a member skips, so another member would never see it."""
    wanted = TagSelection(any=("paid", "vip"), none=("test",))
    groups.answered(groups.join("a", selection=wanted), Joined)
    others = (None, replace(wanted, any=("vip",)), replace(wanted, all=("eu",)), replace(wanted, none=()))
    for other, field in zip(others, ("tags", "tags", "tags_all", "tags_none"), strict=True):
        refused = groups.answered(groups.join("b", selection=other), Conflict)
        assert f"{field}: the other members of group g read records with {wanted}, but" in str(refused)
        assert refused.details["field"] == field
    waiting = groups.join("b", selection=wanted)
    assert waiting not in groups.answers
    groups.answered(groups.join("c", selection=others[1]), Conflict)  # also while the others join
    groups.join("a", selection=wanted, generation=1)
    groups.answered(waiting, Joined)
    leader = groups.committed.groups["g"].leader
    synced = groups.answered(groups.sync(leader, 2, is_auto=True), Synced)
    assert TagSelection.in_fields(synced) == wanted


def test_a_single_member_may_change_its_tags(groups: CoordinatedGroups) -> None:
    groups.answered(groups.join("a", selection=TagSelection.of(("paid",))), Joined)
    groups.answered(groups.join("a", selection=TagSelection.of(("new",)), generation=1), Joined)
    assert groups.committed.groups["g"].members["a"].tags == ("new",)
    groups.answered(groups.join("b"), Conflict)


def test_a_static_member_that_restarts_causes_no_rebalance(groups: CoordinatedGroups) -> None:
    groups.answered(groups.join("a-1", instance="a"), Joined)
    before = groups.answered(groups.sync("a-1", 1, is_auto=True), Synced)
    again = groups.answered(groups.join("a-2", instance="a"), Joined)
    assert (again.generation, again.leader) == (1, "a-2")
    assert groups.answered(groups.sync("a-2", 1), Synced) == before
    groups.beat("a-1", 1, MemberNotFound)
    assert not groups.must_rejoin("a-2", 1)
    other = groups.join("b")
    groups.join("a-3", instance="a")
    groups.answered(other, Joined)


def test_a_static_member_that_restarts_twice_in_one_rebalance_is_one_member(
    groups: CoordinatedGroups,
) -> None:
    generation = groups.stable("b")
    first = groups.join("a-1", instance="a")
    second = groups.join("a-2", instance="a")
    groups.answered(first, MemberNotFound)
    groups.join("b", generation=generation)
    groups.answered(second, Joined)
    assert set(groups.committed.groups["g"].members) == {"a-2", "b"}


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_static_member_that_restarts_in_a_rebalance_owns_nothing(
    groups: CoordinatedGroups, is_planned: bool
) -> None:
    groups.join("a-1", strategies=COOPERATIVE, instance="a")
    groups.answered(groups.sync("a-1", 1, is_auto=True), Synced)
    groups.join("b", strategies=COOPERATIVE)
    if not is_planned:
        groups.join("a-1", generation=1, strategies=COOPERATIVE, instance="a")
    groups.join("a-2", strategies=COOPERATIVE, instance="a")  # a new process, which reads nothing
    if not is_planned:
        groups.join("b", generation=2, strategies=COOPERATIVE)
    group = groups.committed.groups["g"]
    groups.answered(groups.sync(group.leader, group.generation, is_auto=True), Synced)
    members = groups.committed.groups["g"].members.values()
    assert sorted(number for each in members for number in each.assignment["orders"]) == [0, 1, 2, 3]


def withholding(groups: CoordinatedGroups, instance: str = "") -> None:
    """Generation 2: b has joined, and a-1 is to revoke half of its partitions first."""
    groups.join("a-1", strategies=COOPERATIVE, instance=instance)
    groups.answered(groups.sync("a-1", 1, is_auto=True), Synced)
    groups.join("b", strategies=COOPERATIVE)
    groups.join("a-1", generation=1, strategies=COOPERATIVE, instance=instance)
    leader = groups.committed.groups["g"].leader
    groups.answered(groups.sync(leader, 2, is_auto=True), Synced)
    assert not groups.committed.groups["g"].members["b"].assignment


def beaten(groups: CoordinatedGroups, generation: int, *members: str) -> bool:
    """Let the time of a rebalance pass, with heartbeats. Whether all were told to join again."""
    told = set()
    for _ in range(REBALANCE_MS // (SESSION_MS // 2) + 1):
        told |= {member for member in members if groups.must_rejoin(member, generation)}
        groups.after(SESSION_MS // 2)
    return told == set(members)


# requirement: G10, G13
@pytest.mark.parametrize("fails_over", [False, True])
@pytest.mark.parametrize(("instance", "restarted"), [("", "a-1"), ("a", "a-2")])
def test_a_member_that_restarts_before_it_revokes_leaves_no_partition_unread(
    groups: CoordinatedGroups, instance: str, restarted: str, fails_over: bool
) -> None:
    """The new process does not know what the plan withholds for the old one: it revokes nothing."""
    withholding(groups, instance)
    again = groups.join(restarted, strategies=COOPERATIVE, instance=instance)
    assert groups.answered(again, Joined).generation == 2
    if fails_over:
        groups.fail_over()
    assert beaten(groups, 2, restarted, "b")
    groups.join(restarted, generation=2, strategies=COOPERATIVE, instance=instance)
    groups.join("b", generation=2, strategies=COOPERATIVE)
    group = groups.committed.groups["g"]
    groups.answered(groups.sync(group.leader, 3, is_auto=True), Synced)
    group = groups.committed.groups["g"]
    given = [number for each in group.members.values() for number in each.assignment["orders"]]
    assert sorted(given) == [0, 1, 2, 3]
    assert group.rebalances[-1].reason == "withheld partitions were not revoked"
    assert not beaten(groups, 3, restarted, "b")


def test_what_was_revoked_in_time_causes_one_rebalance(groups: CoordinatedGroups) -> None:
    withholding(groups)
    groups.after(SESSION_MS // 2)
    groups.join("a-1", generation=2, strategies=COOPERATIVE, owned={"orders": (0, 1)})
    groups.join("b", generation=2, strategies=COOPERATIVE)
    leader = groups.committed.groups["g"].leader
    groups.answered(groups.sync(leader, 3, is_auto=True), Synced)
    assert not beaten(groups, 3, "a-1", "b")
    assert groups.committed.groups["g"].generation == 3


def test_what_a_strategy_of_the_clients_leaves_out_is_not_withheld(groups: CoordinatedGroups) -> None:
    """It may never give it to anybody: the group would rebalance for ever."""
    groups.join("a", strategies=("mine",))
    groups.answered(groups.sync("a", 1, {"a": {"orders": (0, 1, 2)}}), Synced)
    groups.join("a", generation=1, strategies=("mine",))
    groups.answered(groups.sync("a", 2, {"a": {"orders": (1, 2, 3)}}), Synced)
    assert not beaten(groups, 2, "a")
    groups.fail_over()
    assert not beaten(groups, 2, "a")


def test_partitions_of_a_deleted_topic_are_not_withheld(groups: CoordinatedGroups) -> None:
    topics = ("orders", "payments")
    groups.join("a", *topics, strategies=COOPERATIVE)
    groups.answered(groups.sync("a", 1, is_auto=True), Synced)
    groups.set_partitions("payments", 0)
    groups.join("a", *topics, generation=1, strategies=COOPERATIVE)
    groups.answered(groups.sync("a", 2, is_auto=True), Synced)
    assert not beaten(groups, 2, "a")


def test_members_are_bounded(groups: CoordinatedGroups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groups.membership.MEMBERS_MAX", 20)
    for number in range(20):
        groups.join(f"m{number}")
    refused = groups.answered(groups.join("one-more"), Conflict)
    assert "has 20 members" in str(refused)


def test_the_record_of_a_group_is_bounded(groups: CoordinatedGroups) -> None:
    topics = [f"{number:0>249}" for number in range(1_000)]
    waiting = [groups.join(f"m{number}", *topics) for number in range(30)]
    refused = [groups.answers[each] for each in waiting if isinstance(groups.answers.get(each), Conflict)]
    assert refused
    assert "fewer topics" in str(refused[0])


# requirement: ST2
def test_a_fail_over_gives_every_member_a_whole_session(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    groups.after(SESSION_MS - 1)
    groups.fail_over()
    groups.after(SESSION_MS - 1)
    assert not groups.must_rejoin("a", generation)
    groups.after(1)
    assert groups.must_rejoin("a", generation), "the session of b has ended"


def test_a_fail_over_after_a_leave_continues_the_rebalance(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    groups.leave("a")
    groups.fail_over()
    assert groups.must_rejoin("b", generation)


def test_a_fail_over_before_the_plan_waits_for_it(groups: CoordinatedGroups) -> None:
    groups.join("a")
    groups.fail_over()
    assigned = groups.answered(groups.sync("a", 1, is_auto=True), Synced)
    assert assigned.assignment == {"orders": (0, 1, 2, 3)}


def test_partitions_that_change_during_a_fail_over_cause_a_rebalance(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.counts["orders"] = 5
    groups.fail_over()
    assert groups.must_rejoin("a", generation)


# requirement: F4 G11
@pytest.mark.parametrize("is_empty", [False, True])
def test_partitions_that_are_added_are_read_from_their_start(
    groups: CoordinatedGroups, is_empty: bool
) -> None:
    """Also by a group that began at the end, and by one that had no members when they came."""
    generation = groups.stable("a")
    for partition in range(4):
        groups.commit(Done, 7, partition=partition, member="a", generation=generation)
    if is_empty:
        groups.leave("a")
    groups.set_partitions("orders", 6)
    if not is_empty:
        assert groups.must_rejoin("a", generation)
    joined = groups.answered(groups.join("a", generation=-1 if is_empty else generation), Joined)
    assigned = groups.answered(groups.sync("a", joined.generation, is_auto=True), Synced)
    assert assigned.assignment == {"orders": (0, 1, 2, 3, 4, 5)}
    assert [groups.offset(partition) for partition in range(6)] == [7, 7, 7, 7, 0, 0]
    groups.commit(Done, 9, partition=4, member="a", generation=joined.generation)
    groups.set_partitions("orders", 7)
    groups.join("a", generation=joined.generation)
    assert [groups.offset(partition) for partition in range(4, 7)] == [9, 0, 0]


def left_for_a_while(groups: CoordinatedGroups) -> None:
    """Generation 3: b alone, and nobody subscribes to ``payments`` any more, of which two are committed."""
    groups.join("b", "orders")
    groups.join("a", "orders", "payments")
    groups.join("b", "orders", generation=1)
    leader = groups.committed.groups["g"].leader
    groups.answered(groups.sync(leader, 2, is_auto=True), Synced)
    for number in (0, 1):
        groups.commit(Done, 7, topic="payments", partition=number, member="a", generation=2)
    groups.leave("a")
    planned_again(groups, 2)


def planned_again(groups: CoordinatedGroups, generation: int, *topics: str) -> int:
    """b joins again and makes the plan; gives the generation."""
    joined = groups.answered(groups.join("b", *topics, generation=generation), Joined)
    groups.answered(groups.sync("b", joined.generation, is_auto=True), Synced)
    return joined.generation


# requirement: F4 G11
@pytest.mark.parametrize("is_empty", [False, True])
def test_partitions_that_are_added_while_nobody_subscribes_are_read_from_their_start(
    groups: CoordinatedGroups, is_empty: bool
) -> None:
    left_for_a_while(groups)
    assert groups.committed.groups["g"].former_counts == {"payments": 2}
    groups.set_partitions("payments", 4)
    if is_empty:
        groups.leave("b")
    groups.fail_over()
    planned_again(groups, -1 if is_empty else 3, "orders", "payments")
    assert [groups.offset(number, topic="payments") for number in range(4)] == [7, 7, 0, 0]
    assert groups.committed.groups["g"].former_counts == {}


def test_topics_that_a_group_has_left_for_good_are_forgotten(groups: CoordinatedGroups) -> None:
    left_for_a_while(groups)
    groups.ask(DeleteOffsets(group="g", targets=(("payments", 0), ("payments", 1))), Done)
    assert planned_again(groups, 3) == 4
    assert groups.committed.groups["g"].former_counts == {}


# requirement: F4 G11
def test_a_topic_that_is_created_again_with_more_partitions_has_no_added_ones(
    groups: CoordinatedGroups,
) -> None:
    left_for_a_while(groups)
    groups.topic_ids["payments"] = "t2"
    groups.set_partitions("payments", 4)
    planned_again(groups, 3, "orders", "payments")
    assert {topic for topic, _ in groups.committed.offsets["g"]} == {"payments"}
    assert [groups.offset(number, topic="payments") for number in range(4)] == [7, 7, None, None]


def test_a_group_that_has_read_nothing_of_a_topic_chooses_where_it_begins(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.set_partitions("orders", 6)
    groups.join("a", generation=generation)
    assert [groups.offset(partition) for partition in range(6)] == [None] * 6


def test_a_join_that_a_fail_over_lost_is_repeated(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    lost = groups.join("b")
    groups.fail_over()
    assert not groups.must_rejoin("a", generation)
    repeated = groups.join("b")
    assert groups.must_rejoin("a", generation)
    groups.join("a", generation=generation)
    assert lost not in groups.answers
    assert groups.answered(repeated, Joined).generation == generation + 1


def test_the_journal_says_who_why_and_how_long(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    groups.after(2_000)
    groups.join("b")
    groups.after(3_000)
    groups.join("a", generation=generation)
    leader = groups.committed.groups["g"].leader
    groups.sync(leader, generation + 1, is_auto=True)
    (*_, newest) = groups.committed.groups["g"].rebalances
    assert newest.reason == "member b joined"
    assert (newest.duration_ms, newest.members_before, newest.members_after) == (3_000, 1, 2)
