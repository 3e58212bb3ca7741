"""The assignors by name."""

from __future__ import annotations

import pytest

from raftlog.assignors import ASSIGNORS, assignor


def test_the_four_assignors_have_the_names_of_kafka() -> None:
    # requirement: G14
    assert list(ASSIGNORS) == ["range", "roundrobin", "sticky", "cooperative-sticky"]
    assert all(assignor(name).name == name for name in ASSIGNORS)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^there is no assignor 'stiky'; choose 'range', 'roundrobin', "):
        assignor("stiky")
