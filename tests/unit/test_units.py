"""Durations and sizes with units."""

from __future__ import annotations

import pytest

from raftlog.acks import acks_word
from raftlog.units import counted, duration_ms, size_bytes


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0ms", 0), ("250ms", 250), ("3s", 3_000), ("2m", 120_000), ("1h", 3_600_000), ("14d", 14 * 86_400_000)],
)
def test_a_duration_is_a_number_with_a_unit(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "count"),
    [("7B", 7), ("1kB", 1_000), ("1KB", 1_000), ("1KiB", 1_024), ("3mib", 3 << 20), ("2TiB", 2 << 40)],
)
def test_a_size_is_a_number_with_a_unit(text: str, count: int) -> None:
    assert size_bytes(text) == count


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "1.5h", "5 s", "\u0661s", "5S", "9" * 13 + "s", "5sm"])
def test_other_texts_are_no_durations(text: str) -> None:
    assert duration_ms(text) is None
    assert size_bytes(text) is None


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (-1, "-1 records")]
)
def test_one_of_a_thing_is_told_as_one(number: int, text: str) -> None:
    assert counted(number, "record") == text


def test_other_names_for_acks_are_understood() -> None:
    assert {acks_word(text) for text in ("quorum", "all", " ALL", "-1")} == {"quorum"}
    assert [acks_word(text) for text in ("0", "01", "every", "3")] == ["0", "1", "every", "3"]
    assert {acks_word(text) for text in ("most", "", "-2", "1000", "\u0661")} == {None}
