"""Transactions end once, everywhere alike, whatever is late, lost, repeated or deposed."""

from __future__ import annotations

from collections import Counter

from tests.helpers.transaction_world import TransactionWorld

WORLDS = 200
STEPS = 700


def test_each_transaction_has_one_outcome_in_all_of_its_partitions() -> None:
    # requirement: D3
    tally: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = TransactionWorld(seed)
        try:
            world.run(STEPS)
            world.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        tally.update(world.tally)
    assert min(tally[kind] for kind in ("commits", "aborts", "batches", "ended", "offsets")) > 50, tally
