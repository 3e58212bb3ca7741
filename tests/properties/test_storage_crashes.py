"""Random work on a segmented log, crashes anywhere: see ``tests.helpers.storage_life``."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.storage_life import StorageLife


# requirement: L9, N4
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_after_a_power_loss_all_that_was_durable_is_back_and_nothing_is_invented(seed: int) -> None:
    StorageLife(seed).live(40, lives=6)


# requirement: L9, N4
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_a_failed_sync_left_in_the_cache_alone_is_not_relied_upon(seed: int) -> None:
    StorageLife(seed).live(40, lives=8, failing_syncs=0.05)


@pytest.mark.slow
def test_thousands_of_power_losses() -> None:
    for seed in range(3000):
        StorageLife(seed).live(60, lives=8, failing_syncs=0.05 if seed % 2 else 0.0)


# requirement: L9
def test_a_log_on_a_disk_that_lies_about_syncs_is_found_out() -> None:
    """The control: when syncs do nothing, the check above must fail for most seeds."""
    caught = 0
    for seed in range(20):
        life = StorageLife(seed)
        life.filesystem.lies_about_syncs = True
        for _ in range(40):
            life.step()
        try:
            life.crash_and_check()
        except (AssertionError, Exception):
            caught += 1
    assert caught >= 15
