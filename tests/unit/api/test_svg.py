"""The time axis of a drawing."""

from __future__ import annotations

import pytest

from api import svg


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1.0, [0, 1]),
        (61, [0, 10, 20, 30, 40, 50, 60]),
        (133, [0, 30, 60, 90, 120]),
        (3600, [*range(0, 3601, 600)]),
    ],
)
def test_ticks_are_round(seconds: float, expected: list[int]) -> None:
    assert svg.ticks(seconds) == expected


def test_moments_have_minutes_and_seconds() -> None:
    assert [svg.moment(s) for s in (5.9, 65, 3725)] == ["0:05", "1:05", "1:02:05"]
