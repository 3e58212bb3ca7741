"""Fixtures of the tests of the storage."""

from __future__ import annotations

import pytest

from raftlog.testing.fake_filesystem import FakeFilesystem


@pytest.fixture
def filesystem() -> FakeFilesystem:
    """An empty disk."""
    return FakeFilesystem()
