"""Which brokers vote in the metadata group, from every state of the brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitions.metadata.image import MetadataImage
from partitions.metadata.voters import wanted_voters
from raftlog.types import NodeId
from tests.helpers.metadata_images import cluster

NOBODY: tuple[int, ...] = ()


def ids(*numbers: int) -> frozenset[NodeId]:
    return frozenset(map(NodeId, numbers))


def changed(image: MetadataImage, *numbers: int, **fields: object) -> MetadataImage:
    brokers = dict(image.brokers)
    for number in numbers:
        brokers[NodeId(number)] = replace(brokers[NodeId(number)], **fields)  # type: ignore[arg-type]
    return replace(image, brokers=brokers)


def wanted(
    image: MetadataImage,
    *voters: int,
    dead: tuple[int, ...] = NOBODY,
    unheard: tuple[int, ...] = NOBODY,
    full: tuple[int, ...] = NOBODY,
) -> set[int]:
    heard = image.brokers.keys() - ids(*unheard) - ids(*dead)
    return {*wanted_voters(image, ids(*voters), ids(*dead), heard, ids(*full))}


@pytest.mark.parametrize(
    ("brokers", "voters", "expected"),
    [
        (1, (1,), {1}),
        (2, (1,), {1}),  # two voters would tolerate no failure either, and both would be needed
        (3, (1,), {1, 2, 3}),
        (4, (1, 2, 3), {1, 2, 3}),
        (5, (1, 2, 3), {1, 2, 3, 4, 5}),
        (9, (1, 2, 3), {1, 2, 3, 4, 5}),
        (4, (1, 2, 3, 4), {1, 2, 3, 4}),  # a healthy voter never loses its vote
        (7, (1, 2, 3, 4, 5, 6, 7), {1, 2, 3, 4, 5, 6, 7}),
    ],
)
def test_three_or_five_brokers_vote(brokers: int, voters: tuple[int, ...], expected: set[int]) -> None:
    assert wanted(cluster(brokers=brokers), *voters) == expected


# requirement: F3
def test_a_decommissioned_voter_leaves_and_is_replaced_if_there_is_another_broker() -> None:
    gone = {"decommissioned": True, "draining": True}
    assert wanted(changed(cluster(brokers=4), 2, **gone), 1, 2, 3) == {1, 3, 4}
    assert wanted(changed(cluster(brokers=3), 2, **gone), 1, 2, 3) == {1, 3}
    assert wanted(changed(cluster(brokers=5), 4, 5, **gone), 1, 2, 3, 4, 5) == {1, 2, 3}
    assert wanted(changed(cluster(brokers=6), 5, **gone), 1, 2, 3, 4, 5) == {1, 2, 3, 4, 6}
    assert wanted(changed(cluster(brokers=2), 1, **gone), 1) == {2}
    assert wanted(changed(cluster(brokers=1), 1, **gone), 1) == {1}, "somebody must vote"


# requirement: F1
def test_a_dead_voter_leaves_only_in_exchange_for_another() -> None:
    assert wanted(cluster(brokers=4), 1, 2, 3, dead=(3,)) == {1, 2, 4}
    assert wanted(cluster(brokers=3), 1, 2, 3, dead=(3,)) == {1, 2, 3}
    assert wanted(cluster(brokers=5), 1, 2, 3, 4, 5, dead=(4, 5)) == {1, 2, 3, 4, 5}
    assert wanted(cluster(brokers=6), 1, 2, 3, 4, 5, dead=(4, 5)) == {1, 2, 3, 4, 6}
    assert wanted(cluster(brokers=5), 1, 2, 3, 4, dead=(4,)) == {1, 2, 3, 5}


def test_a_voter_that_leaves_takes_no_majority_away_from_those_that_live() -> None:
    image = changed(cluster(brokers=5), 3, decommissioned=True, draining=True)
    assert wanted(image, 1, 2, 3, 4, 5, dead=(1, 2)) == {1, 4, 5}


@pytest.mark.parametrize(
    "image",
    [
        changed(cluster(brokers=5), 5, alive=False),
        changed(cluster(brokers=5), 5, draining=True),
        changed(cluster(brokers=5), 5, incarnation="", alive=False),
    ],
)
def test_a_broker_that_cannot_vote_now_gets_no_vote(image: MetadataImage) -> None:
    assert 5 not in wanted(image, 1, 2, 3)


def test_brokers_that_are_not_heard_or_have_no_room_get_no_vote() -> None:
    assert wanted(cluster(brokers=6), 1, 2, 3, unheard=(4,)) == {1, 2, 3, 5, 6}
    assert wanted(cluster(brokers=6), 1, 2, 3, full=(5,)) == {1, 2, 3, 4, 6}


def test_a_broker_that_has_never_registered_does_not_make_the_group_larger() -> None:
    image = changed(cluster(brokers=5), 5, incarnation="", alive=False)
    assert wanted(image, 1, 2, 3) == {1, 2, 3}


# requirement: RP11
def test_new_voters_come_from_other_racks_first() -> None:
    image = cluster("a", "a", "b", "a", "b", "c")
    assert wanted(image, 1, 2, 3) == {1, 2, 3, 5, 6}
    assert wanted(changed(image, 3, decommissioned=True, draining=True), 1, 2, 3) == {1, 2, 4, 5, 6}


def test_voters_that_have_not_registered_yet_stay() -> None:
    assert wanted(cluster(brokers=1), 1, 2, 3) == {1, 2, 3}


states = st.sampled_from(("fine", "dead", "unheard", "decommissioned", "admitted", "full"))


@given(st.lists(states, min_size=1, max_size=9), st.data())
@settings(max_examples=200)
def test_whatever_the_brokers_do_no_healthy_voter_is_lost_and_the_goal_is_stable(
    conditions: list[str], data: st.DataObject
) -> None:
    image = cluster(brokers=len(conditions))
    by_state = {name: tuple(n for n, each in enumerate(conditions, 1) if each == name) for name in conditions}
    image = changed(image, *by_state.get("decommissioned", ()), decommissioned=True, draining=True)
    image = changed(image, *by_state.get("admitted", ()), incarnation="", alive=False)
    voters = data.draw(
        st.sets(st.sampled_from(range(1, len(conditions) + 1)), min_size=1).filter(
            lambda chosen: not chosen & {*by_state.get("admitted", ())}
        )
        if set(conditions) != {"admitted"}
        else st.just({1})
    )
    around = {
        "dead": by_state.get("dead", ()),
        "unheard": by_state.get("unheard", ()),
        "full": by_state.get("full", ()),
    }
    found = wanted(image, *voters, **around)
    assert found, "somebody must vote"
    healthy = {n for n in voters if conditions[n - 1] not in ("dead", "decommissioned")}
    assert healthy <= found
    new = found - voters
    assert all(conditions[n - 1] == "fine" for n in new)
    assert len(found) <= max(5, len(voters))
    assert wanted(image, *found, **around) == found, "the goal does not move when it is reached"
