"""Assignors, for any group: whole plans, even ones, few moves, and never two owners."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftlog.assignors import ASSIGNORS, Plan, Subscription, assignor, problem_of
from raftlog.assignors.ownership import owners
from raftlog.types import TopicPartition
from tests.helpers.group_plans import rejoined, subscribed

Members = dict[str, Subscription]
Group = tuple[Members, dict[str, int]]
Cost = tuple[int, int]
"""Sum of squares, and partitions that leave their owner."""

TOPICS = ("t0", "t1", "t2", "t3")
GENERATIONS = st.integers(-1, 3)
COOPERATIVE = assignor("cooperative-sticky")
STICKY = assignor("sticky")


@st.composite
def groups(
    draw: st.DrawFn, members_max: int = 6, partitions_max: int = 4, equal: bool = False, messy: bool = False
) -> Group:
    """Members, and topics of which some do not exist. Messy: a partition may have several owners."""
    topics = st.frozensets(st.sampled_from(TOPICS))
    names = [f"m{number}" for number in range(draw(st.integers(1, members_max)))]
    counts = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(0, partitions_max)))
    shared = draw(topics) if equal else None
    claimed = [TopicPartition(topic, n) for topic in TOPICS for n in range(counts.get(topic, 0) + 1)]
    owner = draw(st.lists(st.sampled_from([None, *names]), min_size=len(claimed) // 2, max_size=len(claimed)))
    members = {}
    for name in names:
        owned = {each for each, who in zip(claimed, owner, strict=False) if who == name}
        if messy:
            owned |= draw(st.sets(st.sampled_from(claimed), max_size=3))
        interest = draw(topics) if shared is None else shared
        members[name] = Subscription(interest, frozenset(owned), draw(GENERATIONS))
    return members, counts


def partitions_of(members: Members, counts: Mapping[str, int]) -> list[TopicPartition]:
    """Those that somebody subscribes."""
    topics = {topic for each in members.values() for topic in each.topics}
    return [
        TopicPartition(topic, n) for topic in sorted(topics & counts.keys()) for n in range(counts[topic])
    ]


def owner_of_each(members: Members) -> dict[TopicPartition, str]:
    """The owners that could stay owners."""
    return {
        partition: owner
        for partition, owner in owners(members).items()
        if owner is not None and partition.topic in members[owner].topics
    }


def cost(rows: Iterable[tuple[TopicPartition, str]], owner: Mapping[TopicPartition, str]) -> Cost:
    """Of a plan that is given as partitions and their members."""
    loads: dict[str, int] = {}
    moves = 0
    for partition, member in rows:
        loads[member] = loads.get(member, 0) + 1
        moves += owner.get(partition, member) != member
    return (sum(load**2 for load in loads.values()), moves)


def least_cost(members: Members, counts: Mapping[str, int]) -> Cost:
    """The least of all plans that there are: even first, then few moves."""
    every, owner = partitions_of(members, counts), owner_of_each(members)
    choices = [[name for name in members if each.topic in members[name].topics] for each in every]
    return min(cost(zip(every, chosen, strict=True), owner) for chosen in itertools.product(*choices))


def cost_of(plan: Plan, members: Members) -> Cost:
    pairs = [(partition, member) for member, row in plan.items() for partition in row]
    return cost(pairs, owner_of_each(members))


def loads(plan: Plan) -> list[int]:
    return [len(row) for row in plan.values()]


# requirement: G4, G5, G14
@pytest.mark.parametrize("name", [name for name in ASSIGNORS if name != "cooperative-sticky"])
@given(groups(messy=True))
@settings(max_examples=20)
def test_every_subscribed_partition_has_exactly_one_owner(name: str, group: Group) -> None:
    members, counts = group
    plan = assignor(name).assign(members, counts)
    assert plan.keys() == members.keys()
    assert problem_of(plan, members, counts) is None
    assert sum(loads(plan)) == len(partitions_of(members, counts))


@given(groups(messy=True))
@settings(max_examples=40)
def test_a_cooperative_plan_is_a_part_of_the_sticky_one_and_the_next_plan_adds_the_rest(group: Group) -> None:
    members, counts = group
    plan, whole = COOPERATIVE.assign(members, counts), STICKY.assign(members, counts)
    assert problem_of(plan, members, counts, may_withhold=True) is None
    assert plan.keys() == members.keys()
    assert all(plan[member] <= whole[member] for member in members)
    for one, other in itertools.permutations(members, 2):
        claimed = plan[one] & members[other].owned
        assert claimed <= members[one].owned
        assert not claimed or members[one].owned_generation > members[other].owned_generation
    following = COOPERATIVE.assign(rejoined(members, plan), counts)
    assert problem_of(following, members, counts) is None
    assert all(plan[member] <= following[member] for member in members)


@pytest.mark.parametrize("name", ["roundrobin", "sticky"])
@given(groups(members_max=9, equal=True, messy=True))
@settings(max_examples=20)
def test_equal_subscriptions_get_an_even_plan(name: str, group: Group) -> None:
    numbers = loads(assignor(name).assign(*group))
    assert max(numbers) - min(numbers) <= 1


@given(groups(members_max=9))
@settings(max_examples=40)
def test_the_runs_of_a_range_plan_differ_by_one_and_the_first_are_longer(group: Group) -> None:
    members, counts = group
    plan = assignor("range").assign(members, counts)
    for topic in counts:
        runs = [
            sorted(each.partition for each in plan[name] if each.topic == topic)
            for name in sorted(members)
            if topic in members[name].topics
        ]
        assert list(itertools.chain(*runs)) == list(range(counts[topic] if runs else 0))
        assert sorted(map(len, runs), reverse=True) == list(map(len, runs))
        assert not runs or len(runs[0]) - len(runs[-1]) <= 1


@given(groups(members_max=9, messy=True))
@settings(max_examples=40)
def test_no_member_of_a_sticky_plan_could_take_from_one_with_two_more(group: Group) -> None:
    """Kafka's rule for different subscriptions."""
    members, counts = group
    plan = STICKY.assign(members, counts)
    for member, row in plan.items():
        for other in plan.values():
            if len(other) >= len(row) + 2:
                assert not {each.topic for each in other} & members[member].topics


@given(groups(members_max=3, partitions_max=2, messy=True))
@example(  # the first member must give one, and only a chain leads to the third one
    (
        {
            "m0": subscribed("t0", "t0/0 t0/1 t0/2", 1),
            "m1": subscribed("t0 t1", "t1/0 t1/1", 1),
            "m2": subscribed("t1", "t1/2", 1),
        },
        {"t0": 3, "t1": 3},
    )
)
@example(({"m0": subscribed("t0 t1"), "m1": subscribed("t0", "t0/0 t0/1")}, {"t0": 2, "t1": 1}))
@example(
    (
        {
            "m0": subscribed("t0"),
            "m1": subscribed("t0 t1", "t0/0"),
            "m2": subscribed("t0 t1 t2", "t0/1"),
        },
        {"t0": 2, "t1": 1, "t2": 2},
    )
)
@settings(max_examples=120)
def test_a_sticky_plan_is_as_even_as_any_and_moves_no_more_than_the_best(group: Group) -> None:
    assert cost_of(STICKY.assign(*group), group[0]) == least_cost(*group)


@given(groups(), st.integers())
@settings(max_examples=40)
def test_a_sticky_plan_moves_nothing_when_its_group_rejoins(group: Group, seed: int) -> None:
    members, counts = group
    plan = STICKY.assign(members, counts)
    again = list(rejoined(members, plan).items())
    random.Random(seed).shuffle(again)
    assert STICKY.assign(dict(again), counts) == plan


# requirement: G4
@given(groups(members_max=4), groups(members_max=4), st.data())
@settings(max_examples=40)
def test_a_cooperative_group_never_has_two_owners(before: Group, after: Group, data: st.DataObject) -> None:
    """Members leave and join, subscriptions and partition counts change; two rounds later all is given."""
    members, counts = before
    reading = obey(members, COOPERATIVE.assign(members, counts), data)
    members, counts = after
    members = {
        name: replace(each, owned=reading[name].owned if name in reading else frozenset(), owned_generation=1)
        for name, each in members.items()
    }
    for _ in range(2):
        plan = COOPERATIVE.assign(members, counts)
        members = obey(members, plan, data)
    assert problem_of(plan, members, counts) is None


def obey(members: Members, plan: Plan, data: st.DataObject) -> Members:
    """Each member revokes what its row does not have, and starts the rest, in any order of members."""
    owned = {name: each.owned for name, each in members.items()}
    for name in data.draw(st.permutations(sorted(members))):
        owned[name] = plan[name]
        every = list(itertools.chain.from_iterable(owned.values()))
        assert len(every) == len(set(every)), f"two owners when {name} starts"
    return rejoined(members, plan)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(groups(messy=True), st.integers())
@settings(max_examples=20)
def test_equal_groups_get_equal_plans_whatever_the_order(name: str, group: Group, seed: int) -> None:
    members, counts = group
    shuffled, topics = list(members.items()), list(counts.items())
    rng = random.Random(seed)
    rng.shuffle(shuffled)
    rng.shuffle(topics)
    plan = assignor(name).assign(members, counts)
    assert assignor(name).assign(dict(shuffled), dict(topics)) == plan
