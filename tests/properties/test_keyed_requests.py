"""A request with an idempotency key is committed once and answered alike, whatever is lost or repeated."""

from __future__ import annotations

from collections import Counter

from tests.helpers.keyed_world import KeyedWorld

WORLDS = 80
STEPS = 800


def test_each_keyed_request_is_committed_once_and_answered_alike() -> None:
    # requirement: D3
    tally: Counter[str] = Counter()
    for seed in range(WORLDS):
        world = KeyedWorld(seed)
        try:
            world.run(STEPS)
            world.finish()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        tally.update(world.tally)
    assert min(tally[kind] for kind in ("keyed", "replayed", "reused", "running")) > 100, tally
