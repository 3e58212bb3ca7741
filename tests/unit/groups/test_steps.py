"""What many groups, or many jobs, have to do at one time is done in steps: others are served between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

import pytest

from groups.coordination import PAUSE_MS, STEP_MAX, SWEEP_MS, SWEPT_MAX
from groups.coordinator import FORGET_PAUSE_S, FORGOTTEN_MAX, GroupCoordinator
from groups.expiry import Survey
from groups.ports import Extents, Place
from groups.records import Group, GroupKey
from groups.requests import Beat, Commit, Done, Join, Joined, OffsetCommit, ReadGroup
from queues.open_jobs import JOBS_AT_ONCE
from queues.records import Job, JobKey, Queue, QueueKey
from queues.requests import Abandon, Receive, Settled
from queues.work_queue import OPENED_MAX
from raftlog.errors import Conflict, GroupNotFound, InvalidRequest
from raftlog.hosting.known_topics import KnownTopics
from tests.helpers.group_coordination import SESSION_MS, CoordinatedGroups
from tests.helpers.instant_groups import InstantLog, NoJobs, TopicsOnly, are_open
from tests.helpers.virtual_time import VirtualClock, VirtualLoop
from tests.helpers.worked_off import LEASE_MS, WorkedOff

# requirement: N2

MANY = 4 * STEP_MAX


class CountedReads(dict[str, int]):
    """It counts how often a value is read."""

    reads = 0

    def __getitem__(self, key: str) -> int:
        self.reads += 1
        return super().__getitem__(key)


@pytest.fixture
def groups() -> CoordinatedGroups:
    """Many groups, each with one member."""
    groups = CoordinatedGroups({"orders": 1, "payments": 1})
    for number in range(MANY):
        groups.stable("a", group=f"g{number}")
    return groups


def all_in_steps(groups: CoordinatedGroups, done: Callable[[], int], count: int = MANY) -> None:
    """What is done in each step is some of all, and all is done in the end."""
    seen = done()
    assert 0 < seen <= STEP_MAX
    while seen < count:
        groups.after(groups.coordination.next_deadline_ms() - groups.now_ms)
        before, seen = seen, done()
        assert before < seen <= before + STEP_MAX


def test_the_groups_of_a_topic_that_changes_rebalance_in_steps(groups: CoordinatedGroups) -> None:
    def rebalancing() -> int:
        return sum(groups.coordination.state_of(f"g{number}") == "rebalancing" for number in range(MANY))

    groups.set_partitions("orders", 2)
    all_in_steps(groups, rebalancing)


def test_a_topic_that_changes_costs_nothing_for_groups_of_other_topics(groups: CoordinatedGroups) -> None:
    groups.answered(groups.join("a", "payments", group="paid"), Joined)
    groups.sync("a", 1, is_auto=True, group="paid")
    counts = groups.topics.counts = CountedReads({"orders": 1, "payments": 2})
    groups.coordination.partitions_changed({"payments"}, groups.now_ms)
    assert groups.coordination.state_of("paid") == "rebalancing"
    assert counts.reads == 1
    counts.reads = 0
    groups.coordination.partitions_changed({"another"}, groups.now_ms)
    assert counts.reads == 0


def test_a_group_that_subscribes_to_a_topic_no_longer_is_not_looked_at(groups: CoordinatedGroups) -> None:
    groups.answered(groups.join("a", "payments", group="g0", generation=1), Joined)
    groups.sync("a", 2, is_auto=True, group="g0")
    groups.answered(groups.leave("a", group="g1"), Done)
    counts = groups.topics.counts = CountedReads({"orders": 2, "payments": 1})
    groups.coordination.partitions_changed({"orders"}, groups.now_ms)
    groups.after(MANY)
    assert counts.reads == MANY - 2
    assert groups.coordination.state_of("g0") == "stable"


def test_sessions_that_end_at_one_time_end_in_steps(groups: CoordinatedGroups) -> None:
    def empty() -> int:
        return sum(not group.members for group in groups.committed.groups.values())

    groups.after(SESSION_MS)
    all_in_steps(groups, empty)


def test_a_coordinator_takes_over_its_groups_in_steps(groups: CoordinatedGroups) -> None:
    groups.fail_over()
    all_in_steps(groups, lambda: len({name for name, _ in groups.coordination.known_until}))


def test_a_group_that_asks_before_it_is_taken_over_is_served(groups: CoordinatedGroups) -> None:
    groups.fail_over()
    for number in range(MANY):
        assert not groups.beat("a", 1, Beat, group=f"g{number}").must_rejoin
    groups.after(SESSION_MS - 1)
    assert all(group.members for group in groups.committed.groups.values())


def with_queues() -> CoordinatedGroups:
    """Many groups, each with one open job, of which a new coordinator has taken over some."""
    groups = CoordinatedGroups({"mail": 1})
    due_ms = groups.wall_ms + LEASE_MS
    for number in range(MANY):
        name, lease = f"g{number}", str(number).encode()
        groups.committed.put(GroupKey(name), Group(changed_ms=groups.wall_ms))
        groups.committed.put(QueueKey(name, "mail", 0), Queue(topic_id="t1", next_offset=1))
        job = Job(partition=0, offset=0, deliveries=1, lease=lease, due_ms=due_ms, term_ms=LEASE_MS)
        groups.committed.put(JobKey(name, "mail", 0), job)
    groups.fail_over()
    return groups


def test_a_coordinator_takes_over_its_queues_in_steps() -> None:
    groups, steps = with_queues(), 0
    assert groups.coordination.queues.open_jobs == MANY
    while groups.coordination.queues.is_behind:
        steps += 1
        groups.after(PAUSE_MS)
    assert steps == MANY // STEP_MAX - 1  # after the first
    assert groups.coordination.queues.open_jobs == MANY


def test_a_queue_that_is_asked_before_it_is_taken_over_knows_its_leases() -> None:
    groups = with_queues()
    for number in range(MANY):
        name, lease = f"g{number}", str(number).encode()
        groups.ask(Abandon(group=name, topic="mail", lease=lease), Settled)
        assert groups.committed.jobs[name]["mail", 0].state == "waiting"
    assert groups.coordination.queues.open_jobs == MANY


def test_groups_that_nobody_uses_are_looked_for_in_steps() -> None:
    groups = CoordinatedGroups({"orders": 1}, offsets_retention_ms=SWEEP_MS - 1)
    for number in range(3 * SWEPT_MAX):
        groups.commit(Done, 7, group=f"g{number}")
    groups.after(SWEEP_MS // 2)
    groups.commit(Done, 8, group="g7")
    groups.after(SWEEP_MS // 2)
    for _ in range(2):
        assert len(groups.committed.groups) == 3 * SWEPT_MAX
        groups.after(PAUSE_MS)
    assert [*groups.committed.groups] == ["g7"]


def test_offsets_of_a_removed_partition_are_deleted_in_steps() -> None:
    groups = CoordinatedGroups({"orders": 2})
    for number in range(MANY):
        groups.commit(Done, 7, partition=1, group=f"g{number}")
    groups.remove_partition("orders", "t1", 1_050)
    all_in_steps(groups, lambda: MANY - len(groups.committed.offsets))


def test_leases_that_end_at_one_time_end_in_steps() -> None:
    mail = WorkedOff()
    mail.produce(*[b""] * (2 * OPENED_MAX + 1))
    while mail.take(4):
        pass
    mail.after(LEASE_MS)
    assert mail.view().parts[0].waiting == OPENED_MAX
    mail.after(2 * PAUSE_MS)
    assert mail.view().parts[0].waiting == 2 * OPENED_MAX + 1


class EmptyTopics(TopicsOnly):
    """No partition has a record."""

    async def extents(self, places: Collection[Place]) -> Extents:
        """None of them exists."""
        return dict.fromkeys(places)


async def test_unused_groups_are_deleted_in_steps() -> None:
    topics, names = EmptyTopics(KnownTopics({"orders": 1})), [f"g{n}" for n in range(2 * FORGOTTEN_MAX)]
    made = GroupCoordinator("__offsets/0", VirtualClock(), topics, NoJobs(), are_open, offsets_retention_ms=1)
    made.leads(InstantLog(made))
    commit = OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=7)
    for name in names:
        await made.ask(Commit(group=name, offsets=(commit,)), 1_000)
    await asyncio.sleep(1)
    made.perform(Survey(tuple(names), (Place("orders", "t1", 0),)))
    await asyncio.sleep(FORGET_PAUSE_S / 2)
    assert len(made.state.groups) == FORGOTTEN_MAX
    await asyncio.sleep(FORGET_PAUSE_S)
    assert not made.state.groups
    made.leads(None)


async def test_unused_groups_are_looked_for_as_often_as_is_set() -> None:
    topics, clock = EmptyTopics(KnownTopics({"orders": 1})), VirtualClock()
    made = GroupCoordinator(
        "__offsets/0", clock, topics, NoJobs(), are_open, offsets_retention_ms=1_000, sweep_every_ms=1_000
    )
    made.leads(InstantLog(made))
    commit = OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=7)
    await made.ask(Commit(group="g", offsets=(commit,)), 1_000)
    await asyncio.sleep(0.9)
    assert made.state.groups
    await asyncio.sleep(1.5)
    assert not made.state.groups
    made.leads(None)


async def test_requests_in_every_turn_do_not_put_off_what_is_due() -> None:
    topics = TopicsOnly(KnownTopics({"orders": 1}))
    made = GroupCoordinator(
        "__offsets/0", VirtualClock(), topics, NoJobs(), are_open, offsets_retention_ms=1 << 40
    )
    made.leads(InstantLog(made))
    join = Join(group="g", member_id="a", topics=("orders",), session_timeout_ms=SESSION_MS)
    assert isinstance(await made.ask(join, 1_000), Joined)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    while made.state.groups["g"].members:
        assert loop.time() < 2 * SESSION_MS / 1000
        loop.skip(0.01)
        with pytest.raises(GroupNotFound):
            await made.ask(ReadGroup(group="another"), 1_000)
        await asyncio.sleep(0)
    made.leads(None)


def test_a_phase_that_begins_with_new_decisions_has_its_whole_time(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a")
    for _ in range(20):
        groups.after(SESSION_MS // 2)
        groups.beat("a", generation, Beat)
    groups.counts["orders"] += 1  # while nothing is decided
    groups.begin_again()
    groups.after(1)
    assert groups.must_rejoin("a", generation)
    assert groups.committed.groups["g"].generation == generation


def test_a_queue_whose_first_request_is_refused_ends_leases() -> None:
    groups = with_queues()
    for number in range(MANY):
        ordered = Receive(
            group=f"g{number}",
            topic="mail",
            topic_id="t1",
            lease=b"n",
            count_max=1,
            lease_ms=9,
            deliveries_max=5,
            is_ordered=True,
        )
        groups.ask(ordered, Conflict)
    groups.after(LEASE_MS + 1_000)
    assert {jobs["mail", 0].state for jobs in groups.committed.jobs.values()} == {"dead"}, "none is leased"


def test_a_commit_costs_its_offsets_however_many_partitions_its_member_has() -> None:
    class Partition(int):
        """The number of a partition that counts what it is compared with."""

        compared = 0

        def __eq__(self, other: object) -> bool:
            Partition.compared += 1
            return int.__eq__(self, other)

        __hash__ = int.__hash__

    many = 1_000
    groups = CoordinatedGroups({"orders": many})
    generation = groups.stable("a")
    offsets = tuple(
        OffsetCommit(topic="orders", topic_id="t1", partition=Partition(number), offset=7)
        for number in range(many + 1)
    )
    refusal = groups.ask(
        Commit(group="g", offsets=offsets, member_id="a", generation=generation), InvalidRequest
    )
    assert f"orders/{many} is not assigned" in str(refusal)
    assert 0 < Partition.compared < 10 * many, "without a look at each partition for each offset"


def with_a_large_queue(count: int) -> CoordinatedGroups:
    """A queue with so many open jobs, which a new coordinator has begun to take over."""
    groups = CoordinatedGroups({"mail": 1})
    due_ms = groups.wall_ms + LEASE_MS
    groups.committed.put(GroupKey("g"), Group(changed_ms=groups.wall_ms))
    groups.committed.put(QueueKey("g", "mail", 0), Queue(topic_id="t1", next_offset=count))
    for number in range(count):
        lease = str(number).encode()
        job = Job(partition=0, offset=number, deliveries=1, lease=lease, due_ms=due_ms, term_ms=LEASE_MS)
        groups.committed.put(JobKey("g", "mail", number), job)
    groups.fail_over()
    return groups


def test_a_queue_with_many_jobs_is_taken_over_in_steps() -> None:
    groups, steps = with_a_large_queue(4 * STEP_MAX * JOBS_AT_ONCE), 1
    while groups.coordination.queues.is_behind:
        assert groups.coordination.queues.open_jobs == 4 * STEP_MAX * JOBS_AT_ONCE
        steps += 1
        groups.after(PAUSE_MS)
    assert steps > 2 * 4, "each job is taken in, and then offered"
    assert groups.coordination.queues.open_jobs == 4 * STEP_MAX * JOBS_AT_ONCE


def test_a_queue_that_is_asked_while_it_is_taken_over_knows_all_its_leases() -> None:
    count = 4 * STEP_MAX * JOBS_AT_ONCE
    groups = with_a_large_queue(count)
    groups.after(PAUSE_MS)
    assert groups.coordination.queues.is_behind
    for number in (0, count - 1):
        groups.ask(Abandon(group="g", topic="mail", lease=str(number).encode()), Settled)
        assert groups.committed.jobs["g"]["mail", number].state == "waiting"
    assert not groups.coordination.queues.is_behind
    assert groups.coordination.queues.open_jobs == count
