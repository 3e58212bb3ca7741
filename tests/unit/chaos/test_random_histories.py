"""Random histories of a correct log are valid, and a planted fault makes them invalid."""

from __future__ import annotations

import pytest

from chaos.checkers import Anomaly, Severity, check
from chaos.history import History
from tests.helpers.clean_histories import clean_history


def wrong(history: History) -> list[Anomaly]:
    return [anomaly for anomaly in check(history) if anomaly.severity is not Severity.NORMAL]


@pytest.mark.parametrize("seed", range(100))
def test_a_correct_log_is_never_accused(seed: int) -> None:
    assert wrong(clean_history(seed, 60)) == []


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(100))
def test_ten_thousand_correct_histories_are_valid(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        assert wrong(clean_history(seed, 20 + seed % 180)) == [], f"seed {seed}"
