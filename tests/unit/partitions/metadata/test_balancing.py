"""Plans that make brokers carry alike, from every placement of replicas and leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from partitions.metadata.balancing import BYTES_APART_MIN, Loads, PartitionLoad, plan_balancing, propose
from partitions.metadata.image import MetadataImage, PlannedMove
from raftlog.types import GroupId, NodeId
from raftlog.wire.limits import PLAN_MOVES_MAX
from tests.helpers.metadata_images import applied, cluster, create, nodes, set_replicas

GIB = 1 << 30


def planned(image: MetadataImage, loads: Loads | None = None) -> tuple[PlannedMove, ...]:
    return plan_balancing(image, [*image.brokers], loads or {})


def carried_out(image: MetadataImage, moves: Sequence[PlannedMove]) -> list[tuple[NodeId, ...]]:
    """The rows of topic ``t`` after these moves."""
    rows = [partition.target_replicas for partition in image.topics["t"].partitions]
    for move in moves:
        assert rows[move.partition] == move.replicas
        rows[move.partition] = move.target
    return rows


def replicas(rows: Sequence[Sequence[int]], brokers: int) -> list[int]:
    counts = Counter(node for row in rows for node in row)
    return [counts[number] for number in range(1, brokers + 1)]


def leaders(rows: Sequence[Sequence[int]], brokers: int) -> list[int]:
    counts = Counter(row[0] for row in rows)
    return [counts[number] for number in range(1, brokers + 1)]


def topic(image: MetadataImage, rows: Sequence[Sequence[int]]) -> MetadataImage:
    return applied(create("t", *rows), to=image)[0]


def sizes(*numbers: int) -> Mapping[GroupId, PartitionLoad]:
    return {GroupId(group): PartitionLoad(size) for group, size in enumerate(numbers, 1)}


# requirement: F2
def test_a_new_broker_takes_its_share_of_replicas_and_leaders() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)
    moves = planned(image)
    rows = carried_out(image, moves)
    assert replicas(rows, 4) == [9, 9, 9, 9]
    assert sorted(leaders(rows, 4)) == [3, 3, 3, 3]
    assert sum({*move.target} != {*move.replicas} for move in moves) == 9, "no replica moves in vain"


ROWS = st.integers(3, 6).flatmap(
    lambda brokers: st.tuples(
        st.just(brokers),
        st.lists(
            st.lists(st.integers(1, brokers), min_size=1, max_size=3, unique=True), min_size=1, max_size=20
        ),
    )
)


@given(ROWS)
def test_every_placement_becomes_even_keeps_its_replicas_and_stays_as_it_is(
    drawn: tuple[int, list[list[int]]],
) -> None:
    brokers, wanted = drawn
    image = cluster(brokers=brokers)
    for number, row in enumerate(wanted):
        image, _ = applied(create(f"t{number}", row, number=number), to=image)
    moves = {move.name: move for move in planned(image)}
    rows = [
        moves[name].target if name in moves else each.partitions[0].replicas
        for name, each in image.topics.items()
    ]
    assert [len(set(row)) for row in rows] == [len(row) for row in wanted]
    counts = replicas(rows, brokers)
    assert max(counts) - min(counts) <= 1
    after, _ = cluster(brokers=brokers), 0
    for number, row in enumerate(rows):
        after, _ = applied(create(f"t{number}", row, number=number), to=after)
    assert planned(after) == (), "a plan of what a plan has made is empty"


@given(st.lists(st.sampled_from([*combinations(range(1, 6), 3)]), min_size=1, max_size=25))
@example([(2, 3, 4), (2, 4, 5), (1, 4, 5), (3, 4, 5), (1, 4, 5)])  # only by way of a third broker
def test_preferred_leaders_are_even_where_a_chain_of_partitions_allows_it(
    rows: list[tuple[int, ...]],
) -> None:
    image = topic(cluster(brokers=5), rows)
    after = carried_out(image, planned(image))
    counts = leaders(after, 5)
    assert max(counts) - min(counts) <= 1


def test_leaders_are_evened_along_a_chain() -> None:
    image = topic(cluster(brokers=3), [(1, 2), (1, 2), (2, 3), (2, 3), (1, 3), (1, 3)])
    moves = planned(image)
    assert leaders(carried_out(image, moves), 3) == [2, 2, 2]
    assert all({*move.target} == {*move.replicas} for move in moves), "nothing is copied"


def test_no_rack_gets_a_second_replica() -> None:
    image = topic(cluster("a", "a", "b", "b", "c", "c"), [(1, 3, 5)] * 6)
    rows = carried_out(image, planned(image))
    assert replicas(rows, 6) == [3, 3, 3, 3, 3, 3]
    assert all(len({(node - 1) // 2 for node in row}) == 3 for row in rows)


def test_replicas_leave_a_rack_that_has_two_of_them() -> None:
    image = topic(cluster("a", "a", "b", "c"), [(1, 2, 3)])
    (move,) = planned(image)
    assert {*move.target} in ({1, 3, 4}, {2, 3, 4})


def test_a_rack_with_fewer_brokers_stays_fuller_than_the_others() -> None:
    image = topic(cluster("a", "b", "c", "c"), [(1, 2, 3)] * 4)
    rows = carried_out(image, planned(image))
    assert replicas(rows, 4) == [4, 4, 2, 2]


def test_a_partition_that_moves_already_counts_and_stays() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3)] * 4)
    image, _ = applied(set_replicas("t", (1, 2, 4), (1, 2, 3)), to=image)
    moves = planned(image)
    assert 0 not in [move.partition for move in moves]
    assert replicas(carried_out(image, moves), 4) == [3, 3, 3, 3]


def test_brokers_that_are_left_out_keep_what_they_have_and_get_nothing() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3)] * 4)
    moves = plan_balancing(image, nodes(1, 2, 3), {})
    assert replicas(carried_out(image, moves), 4) == [4, 4, 4, 0]


@pytest.mark.parametrize(("large", "is_moved"), [(2 * GIB, True), (BYTES_APART_MIN // 2, False)])
def test_brokers_exchange_replicas_until_their_bytes_are_alike(large: int, is_moved: bool) -> None:
    image = topic(cluster(brokers=2), [(1,), (1,), (2,), (2,)])
    loads = sizes(large, large, 0, 0)
    rows = carried_out(image, planned(image, loads))
    assert replicas(rows, 2) == [2, 2]
    held = [
        sum(loads[GroupId(at + 1)].size_bytes for at, row in enumerate(rows) if node in row)
        for node in (1, 2)
    ]
    assert (held == [large, large]) is is_moved


def test_small_differences_of_bytes_move_nothing() -> None:
    image = topic(cluster(brokers=2), [(1,), (1,), (2,), (2,)])
    assert planned(image, sizes(55 * GIB, 54 * GIB, 46 * GIB, 45 * GIB)) == ()


def test_the_least_bytes_are_moved_to_a_new_broker() -> None:
    image = topic(cluster(brokers=3), [(1,), (1,), (1,), (2,), (2,), (2,)])
    moves = planned(image, sizes(90 << 20, 1 << 20, 90 << 20, 90 << 20, 1 << 20, 90 << 20))
    assert [move.partition for move in moves] == [1, 4]


def test_brokers_exchange_leaders_until_their_load_is_alike() -> None:
    image = topic(cluster(brokers=2), [(1, 2), (1, 2), (2, 1), (2, 1)])
    loads = {GroupId(group): PartitionLoad(0, rate) for group, rate in enumerate((900.0, 900.0, 1.0, 1.0), 1)}
    moves = planned(image, loads)
    rows = carried_out(image, moves)
    assert leaders(rows, 2) == [2, 2]
    assert rows[0][0] != rows[1][0]
    assert all({*move.target} == {*move.replicas} for move in moves)


def test_a_follower_moves_rather_than_a_leader() -> None:
    image = topic(cluster(brokers=4), [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 2, 3), (2, 3, 1), (3, 1, 2)])
    moves = [move for move in planned(image) if {*move.target} != {*move.replicas}]
    assert all(4 in move.target for move in moves)
    assert all(move.replicas[0] in move.target for move in moves)


def test_a_plan_is_of_bounded_size_and_the_next_one_goes_on() -> None:
    image = topic(cluster(brokers=2), [(1,)] * (2 * PLAN_MOVES_MAX + 10))
    assert len(planned(image)) == PLAN_MOVES_MAX


def test_a_proposal_says_what_it_copies_and_for_how_long() -> None:
    image = topic(cluster(brokers=2), [(1,), (1,)])
    proposal = propose(image, [*image.brokers], sizes(10 << 20, 30 << 20), 1 << 20)
    assert proposal.made_at == image.version
    assert sum(proposal.bytes_of) == 10 << 20
    assert proposal.copy_ms == 10_000
