"""Fixtures of the tests of queues."""

from __future__ import annotations

import pytest

from tests.helpers.worked_off import WorkedOff


@pytest.fixture
def mail() -> WorkedOff:
    """A queue of one partition without jobs."""
    return WorkedOff()
