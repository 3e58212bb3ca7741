"""Fixtures of the tests of the simulator."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _modules_are_not_searched_for_garbage() -> Iterator[None]:
    """A run of whole brokers ends what ``pytest_collection_finish`` has begun."""
    yield
    if gc.get_freeze_count() == 0:
        gc.freeze()
