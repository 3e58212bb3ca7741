"""Ranges of aborted transactions, and the copies that work on other threads has of them."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.records.aborted import AbortedRange, AbortedRanges
from tests.helpers.profiled import opcodes_of

Of = dict[int, list[AbortedRange]]


def in_order(ranges: AbortedRanges) -> tuple[list[AbortedRange], Of]:
    """All ranges, and those of each producer."""
    return [*ranges], {producer: [*some] for producer, some in ranges._of_producer.items()}


def by_producer(ranges: list[AbortedRange]) -> Of:
    found: Of = {}
    for each in ranges:
        found.setdefault(each.producer_id, []).append(each)
    return found


# requirement: D3
@pytest.mark.parametrize("seed", range(10))
def test_a_copy_loses_nothing_that_is_forgotten_later(seed: int) -> None:
    rng, ranges, kept = Random(seed), AbortedRanges(), list[AbortedRange]()
    copies: list[tuple[AbortedRanges, list[AbortedRange]]] = []
    for offset in range(1, 300):
        if rng.random() < 0.8:
            kept.append(AbortedRange(rng.randrange(5), offset - 1, offset))
            ranges.add(kept[-1])
        elif rng.random() < 0.5:
            below = rng.randrange(offset)
            ranges.forget_below(below)
            kept = [each for each in kept if each.last_offset >= below]
        else:
            copies.append((ranges.copy(), [*kept]))
        assert in_order(ranges) == (kept, by_producer(kept))
    for copied, then in copies:
        assert [*copied] == then
        for producer, some in by_producer(then).items():
            assert copied._of_producer[producer][: len(some)] == some, "later ones stand behind"


# requirement: N2
def test_a_copy_of_many_ranges_costs_as_much_as_one_of_few() -> None:
    def cost_of(count: int) -> int:
        ranges = AbortedRanges(AbortedRange(each % 7, each, each) for each in range(count))
        return opcodes_of(ranges.copy)

    assert cost_of(2_000) == cost_of(1_000)
