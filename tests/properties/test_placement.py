"""Placement stays even and apart for any sequence of topics on a cluster of equals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from partitions.metadata.placement import place
from raftlog.types import NodeId

Topics = list[tuple[int, int]]
"""Partitions and replication factor of each topic, in the order of their creation."""

Rows = Sequence[Sequence[NodeId]]


def create_all(brokers: dict[NodeId, str | None], topics: Topics) -> list[list[tuple[NodeId, ...]]]:
    """The rows that exist after each topic."""
    rows: list[tuple[NodeId, ...]] = []
    after = []
    for partitions, factor in topics:
        rows = [*rows, *place(brokers, rows, partitions, min(factor, len(brokers)))]
        after.append(rows)
    return after


def unevenness(brokers: dict[NodeId, str | None], rows: Rows) -> tuple[int, int]:
    """Max minus min of replicas and of leaders."""
    replicas = Counter(broker for row in rows for broker in row)
    leaders = Counter(row[0] for row in rows)
    return tuple(max(c[b] for b in brokers) - min(c[b] for b in brokers) for c in (replicas, leaders))  # type: ignore[return-value]


topics = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 5)), min_size=1, max_size=20)


# requirement: T3, RP1
@given(st.integers(1, 12), topics)
@example(3, [(1, 3), (1, 1), (1, 1), (1, 3), (1, 1)])  # where leading by the fewest replicas goes wrong
@settings(max_examples=120)
def test_replicas_and_leaders_are_spread_evenly_after_every_topic(count: int, topics: Topics) -> None:
    brokers: dict[NodeId, str | None] = {NodeId(number): None for number in range(1, count + 1)}
    for rows in create_all(brokers, topics):
        assert max(unevenness(brokers, rows)) <= 1
        assert all(len(set(row)) == len(row) for row in rows)


# requirement: RP11, T3
@given(st.integers(1, 6), st.integers(1, 4), topics)
@settings(max_examples=120)
def test_equal_racks_share_evenly_and_a_partition_uses_as_many_as_it_can(
    racks: int, in_each: int, topics: Topics
) -> None:
    brokers: dict[NodeId, str | None] = {
        NodeId(number): f"rack-{number % racks}" for number in range(1, racks * in_each + 1)
    }
    for rows in create_all(brokers, topics):
        assert max(unevenness(brokers, rows)) <= 1
        for row in rows:
            shares = Counter(brokers[broker] for broker in row)
            assert len(shares) == min(len(row), racks)
            assert max(shares.values()) - min(shares[rack] for rack in brokers.values()) <= 1


# requirement: RP11, RP1
@given(st.dictionaries(st.integers(1, 12), st.sampled_from(["a", "b", "c", None]), min_size=1), topics)
@settings(max_examples=120)
def test_unequal_racks_are_still_told_apart(labels: dict[int, str | None], topics: Topics) -> None:
    brokers = {NodeId(number): rack for number, rack in labels.items()}
    for row in create_all(brokers, topics)[-1]:
        assert len(set(row)) == len(row)
        assert len({brokers[broker] for broker in row}) == min(len(row), len(set(brokers.values())))


# requirement: RP11
@given(st.dictionaries(st.integers(1, 12), st.sampled_from(["a", "b", "c", None]), min_size=1), topics)
@settings(max_examples=120)
def test_racks_of_any_size_share_a_partition_as_evenly_as_their_sizes_allow(
    labels: dict[int, str | None], topics: Topics
) -> None:
    brokers = {NodeId(number): rack for number, rack in labels.items()}
    sizes = Counter(brokers.values())
    for row in create_all(brokers, topics)[-1]:
        shares = Counter(dict.fromkeys(sizes, 0))
        shares.update(brokers[broker] for broker in row)
        most = max(shares.values())
        for rack, share in shares.items():
            assert share >= min(most - 1, sizes[rack]), (rack, shares, sizes)


# requirement: RP11
@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=3, max_size=12).filter(
        lambda racks: len({*racks}) >= 3
    ),
    st.sampled_from([3, 5, 7]),
    st.integers(1, 20),
)
@settings(max_examples=120)
def test_each_partition_of_three_replicas_keeps_a_majority_when_a_rack_of_three_is_lost(
    racks: list[str | None], factor: int, partitions: int
) -> None:
    brokers: dict[NodeId, str | None] = {NodeId(number): rack for number, rack in enumerate(racks, 1)}
    sizes = Counter(brokers.values())
    rows = place(brokers, [], partitions, min(factor, len(brokers)))
    if factor > 3 and len(sizes) * min(sizes.values()) < factor:
        return  # the other racks have too few brokers to share more evenly
    for row in rows:
        for lost in sizes:
            left = [broker for broker in row if brokers[broker] != lost]
            assert 2 * len(left) > len(row), (row, lost)


@given(st.integers(3, 8), topics, topics)
@settings(max_examples=80)
def test_a_cluster_out_of_balance_never_gets_worse(count: int, before: Topics, after: Topics) -> None:
    brokers: dict[NodeId, str | None] = {NodeId(number): None for number in range(1, count + 1)}
    few = {broker: brokers[broker] for broker in sorted(brokers)[:3]}
    rows: list[tuple[NodeId, ...]] = create_all(few, before)[-1]
    worst = unevenness(brokers, rows)[0]
    for partitions, factor in after:
        rows = [*rows, *place(brokers, rows, partitions, min(factor, count))]
        assert unevenness(brokers, rows)[0] <= max(worst, 1)


def test_equal_questions_get_equal_answers_whatever_the_order_of_the_brokers() -> None:
    brokers: dict[NodeId, str | None] = {NodeId(number): f"rack-{number % 3}" for number in range(1, 8)}
    turned = dict(reversed(brokers.items()))
    assert place(brokers, [], 20, 3) == place(turned, [], 20, 3)
