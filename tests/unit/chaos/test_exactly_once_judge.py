"""The judge of copies: a history for each thing that may be wrong, and one in which nothing is."""

from __future__ import annotations

import pytest

from chaos.exactly_once.copies import Copy, Input
from chaos.exactly_once.judge import judged

INPUTS = {Input(0, 0), Input(0, 1), Input(1, 0)}
RIGHT = (
    Copy(Input(0, 0), "a", 2),
    Copy(Input(0, 1), "a", 2),
    Copy(Input(1, 0), "b", 1),
)


# requirement: D3
def test_one_output_for_each_input_is_exactly_once() -> None:
    verdict = judged(RIGHT, INPUTS)
    assert verdict.is_exactly_once
    assert (verdict.transactions, verdict.records, verdict.examples) == (2, 3, ())


@pytest.mark.parametrize(
    ("copies", "wrong"),
    [
        (RIGHT[:2], {"lost": 1}),
        ((*RIGHT, Copy(Input(1, 0), "c", 1)), {"doubled": 1}),
        ((*RIGHT, Copy(Input(1, 0), "b", 1)), {"doubled": 1, "torn": 1}),
        ((*RIGHT, Copy(Input(1, 1), "c", 1)), {"foreign": 1}),
        ((*RIGHT[:2], Copy(Input(1, 0), "b", 2)), {"torn": 1}),
        (RIGHT[1:], {"lost": 1, "torn": 1}),
    ],
)
def test_what_is_wrong_is_counted(copies: tuple[Copy, ...], wrong: dict[str, int]) -> None:
    verdict = judged(copies, INPUTS)
    found = {name: getattr(verdict, name) for name in ("lost", "doubled", "foreign", "torn")}
    assert {name: number for name, number in found.items() if number} == wrong
    assert not verdict.is_exactly_once
    assert len(verdict.examples) == sum(wrong.values())
