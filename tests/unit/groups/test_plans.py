"""Plans that take long: others are served meanwhile, and a plan counts for its own generation alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from groups.coordinator import PLAN_AT_ONCE, GroupCoordinator
from groups.requests import Commit, Done, Join, Joined, OffsetCommit, Sync, Synced
from raftlog.errors import InvalidRequest, Overloaded, RebalanceInProgress
from raftlog.hosting.known_topics import KnownTopics
from raftlog.node.blocking import RunBlocking
from raftlog.node.threads import in_thread
from tests.helpers.group_coordination import REBALANCE_MS, SESSION_MS, CoordinatedGroups
from tests.helpers.instant_groups import InstantLog, NoJobs, TopicsOnly, are_open
from tests.helpers.virtual_time import VirtualClock, VirtualLoop

# requirement: N2

LATER_S = 3.0
LARGE = PLAN_AT_ONCE
Result = TypeVar("Result")


@pytest.fixture
def groups() -> CoordinatedGroups:
    """Plans are made when the test says so."""
    groups = CoordinatedGroups({"orders": 4})
    groups.makes_plans = False
    return groups


def test_members_wait_for_a_plan_that_is_being_made(groups: CoordinatedGroups) -> None:
    groups.join("a")
    asking = groups.sync("a", 1, is_auto=True)
    groups.commit(Done, 7, group="another")
    assert asking not in groups.answers
    groups.make_plans()
    assert groups.answered(asking, Synced).assignment == {"orders": (0, 1, 2, 3)}


def test_a_sync_that_is_repeated_begins_no_second_plan(groups: CoordinatedGroups) -> None:
    groups.join("a")
    asking = [groups.sync("a", 1, is_auto=True) for _ in range(3)]
    assert len(groups.plans) == 1
    groups.make_plans()
    assert all(groups.answered(each, Synced).generation == 1 for each in asking)


# requirement: G12
def test_a_plan_of_an_earlier_generation_is_dropped(groups: CoordinatedGroups) -> None:
    groups.join("a")
    asking = groups.sync("a", 1, is_auto=True)
    joining = groups.join("b")
    groups.make_plans()
    assert isinstance(groups.answers[asking], RebalanceInProgress)
    assert not groups.committed.groups["g"].has_plan
    groups.join("a", generation=1)
    leader = groups.answered(joining, Joined).leader
    asking = groups.sync(leader, 2, is_auto=True)
    groups.make_plans()
    assert groups.answered(asking, Synced).assignment == {"orders": (0, 1) if leader == "a" else (2, 3)}


# requirement: G10
def test_a_leader_keeps_its_place_however_long_its_plan_takes(groups: CoordinatedGroups) -> None:
    groups.join("a")
    asking = groups.sync("a", 1, is_auto=True)
    groups.after(REBALANCE_MS + SESSION_MS)
    groups.make_plans()
    assert groups.answered(asking, Synced).generation == 1


def test_after_a_plan_that_does_not_fit_the_leader_may_send_another(groups: CoordinatedGroups) -> None:
    groups.join("a")
    refused = groups.sync("a", 1, {"a": {"orders": (0, 1, 2)}})
    groups.make_plans()
    assert isinstance(groups.answers[refused], InvalidRequest)
    asking = groups.sync("a", 1, {"a": {"orders": (0, 1, 2, 3)}})
    groups.make_plans()
    assert groups.answered(asking, Synced).assignment == {"orders": (0, 1, 2, 3)}


# At a coordinator.


def coordinator_of(partitions: int, run_blocking: RunBlocking = in_thread) -> GroupCoordinator:
    topics = TopicsOnly(KnownTopics({"orders": partitions}))
    made = GroupCoordinator(
        "__offsets/0",
        VirtualClock(),
        topics,
        NoJobs(),
        are_open,
        offsets_retention_ms=1 << 40,
        run_blocking=run_blocking,
    )
    made.leads(InstantLog(made))
    return made


async def joined(coordinator: GroupCoordinator) -> Callable[[], asyncio.Task[object]]:
    """A member that leads its group; what is returned asks for a plan."""
    assert isinstance(
        await coordinator.ask(Join(group="g", member_id="a", topics=("orders",)), 1_000), Joined
    )
    sync = Sync(group="g", member_id="a", generation=1, is_auto=True)
    return lambda: asyncio.create_task(coordinator.ask(sync, 60_000))


@pytest.mark.parametrize(("partitions", "after_s"), [(LARGE - 1, 0.0), (LARGE, LATER_S)])
async def test_a_large_plan_is_made_on_a_thread(partitions: int, after_s: float) -> None:
    coordinator, loop = coordinator_of(partitions), asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.thread_after_s = LATER_S
    planning = (await joined(coordinator))()
    commit = OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=7)
    assert isinstance(await coordinator.ask(Commit(group="another", offsets=(commit,)), 1_000), Done)
    assert loop.time() == 0.0
    found = await planning
    assert isinstance(found, Synced)
    assert found.assignment == {"orders": tuple(range(partitions))}
    assert loop.time() == after_s
    coordinator.leads(None)


async def test_a_plan_for_which_something_lacks_is_asked_for_again() -> None:
    lacks = [MemoryError()]

    async def run(work: Callable[[], Result]) -> Result:
        if lacks:
            raise lacks.pop()
        return await in_thread(work)

    coordinator = coordinator_of(LARGE, run)
    ask = await joined(coordinator)
    with pytest.raises(Overloaded):
        await ask()
    assert isinstance(await ask(), Synced)
    coordinator.leads(None)


async def test_plans_are_made_one_after_another() -> None:
    running, most = 0, 0

    async def run(work: Callable[[], Result]) -> Result:
        nonlocal running, most
        running += 1
        most = max(most, running)
        found = await in_thread(work)
        running -= 1
        return found

    coordinator, loop = coordinator_of(LARGE, run), asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.thread_after_s = LATER_S

    async def planned(group: str) -> None:
        await coordinator.ask(Join(group=group, member_id="a", topics=("orders",)), 1_000)
        await coordinator.ask(Sync(group=group, member_id="a", generation=1, is_auto=True), 60_000)

    await asyncio.gather(*map(planned, ("g", "h", "i")))
    assert most == 1
    coordinator.leads(None)
