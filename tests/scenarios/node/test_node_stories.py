"""Brokers with Raft groups, real logs and drawn faults: see ``tests.helpers.node_story``."""

from __future__ import annotations

import pytest

from tests.helpers.node_story import tell


# requirement: L9 P5 N4
@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_was_acknowledged_is_lost_or_changed(seed: int) -> None:
    story = tell(seed)
    assert story.acknowledged


@pytest.mark.parametrize("seed", range(1000, 1002))
def test_five_brokers_keep_what_they_acknowledged(seed: int) -> None:
    assert tell(seed, nodes=5, groups=1).acknowledged


@pytest.mark.parametrize("seed", range(3000, 3008))
def test_compacted_logs_keep_the_newest_record_of_each_key(seed: int) -> None:
    assert tell(seed, compacts=True).acknowledged


@pytest.mark.slow
def test_hundreds_of_stories_of_compacted_logs() -> None:
    for seed in range(4000, 4200):
        try:
            tell(seed, compacts=True)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.slow
def test_hundreds_of_stories_keep_what_was_acknowledged() -> None:
    for seed in range(2000, 2300):
        try:
            tell(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
