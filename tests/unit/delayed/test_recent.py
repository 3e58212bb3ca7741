"""How messages left is forgotten in the order in which they left."""

from __future__ import annotations

import pytest

from delayed import recent
from delayed.recent import RECENT_MS, Left, Recent
from delayed.records import Outcome
from tests.helpers.decided_delays import id_of

# requirement: A3


def left(at_ms: int) -> Left:
    return Left(Outcome.DELIVERED, at_ms, at_ms)


def test_what_left_ten_minutes_ago_is_forgotten() -> None:
    rows = Recent()
    for number in range(10):
        rows.remember(id_of(number), left(number))
    rows.forget_before(RECENT_MS + 3)
    assert list(rows) == [id_of(number) for number in range(4, 10)]
    assert rows.get(id_of(3)) is None
    assert rows[id_of(4)] == left(4)


def test_there_are_at_most_so_many_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "RECENT_MAX", 5)
    rows = Recent()
    for number in range(20):
        rows.remember(id_of(number), left(0))
        rows.forget_before(0)
    assert list(rows.items()) == [(id_of(number), left(0)) for number in range(15, 20)]


def test_what_is_told_again_keeps_its_place_and_a_copy_is_apart() -> None:
    rows = Recent([(id_of(1), left(1)), (id_of(2), left(2))])
    rows.remember(id_of(1), left(5))
    copied = rows.copy()
    copied.forget_before(RECENT_MS + 5)
    assert list(rows.items()) == [(id_of(1), left(5)), (id_of(2), left(2))]
    assert not copied


def test_the_oldest_is_found_without_a_look_at_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key of a dict is behind all that were deleted: each would cost a walk over 10,000 entries."""
    monkeypatch.setattr(recent, "RECENT_MAX", 10)

    class NotWalked(dict[bytes, Left]):
        def __iter__(self) -> None:  # type: ignore[override]
            raise AssertionError("it walks over the dict")

    rows = Recent()
    rows._left = NotWalked()
    for number in range(100):
        rows.remember(id_of(number), left(number))
        rows.forget_before(number)
    assert len(rows) == 10
