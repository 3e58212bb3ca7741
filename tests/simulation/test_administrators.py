"""Administrators race for the same names while brokers miss what they did: incarnations stay apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verification.simulator.odds import AFTER_A_METADATA_COMMIT, AWAY, CALM
from verification.simulator.simulation import run

RACE = replace(
    CALM,
    brokers=4,
    rates=(1.0,) * 4,
    faults_s=8.0,
    pause_s=0.5,
    timed=(AWAY, "kill"),
    aimed={AFTER_A_METADATA_COMMIT: 0.1},
    administrators=3,
    settings=replace(CALM.settings, trash_delay_ms=1000),
)
LAST_RESORT = replace(
    CALM, brokers=5, rates=(1.0,) * 5, faults_s=18.0, timed=("transfer",), administrators=3, recovers=True
)


# requirement: T1, T5
@pytest.mark.parametrize("seed", [1, 2])
def test_racing_administrators_mix_no_incarnations(seed: int) -> None:
    result = run(seed, RACE)
    assert result.violations == ()
    assert result.faults[AFTER_A_METADATA_COMMIT] + result.faults[AWAY] > 0


# requirement: F6
def test_recoveries_lose_only_what_they_say() -> None:
    result = run(1, LAST_RESORT)
    assert result.violations == ()
    assert result.faults["recover unsafely"] > 0
