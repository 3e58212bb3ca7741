"""Consume, transform, produce in transactions, while brokers and copying processes are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.exactly_once.run import copy_under_faults
from tests.helpers.judged_load import SEED

pytestmark = pytest.mark.e2e


# requirement: D3 D4
def test_each_input_has_one_output_whatever_is_killed(directory: Path) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    run = copy_under_faults(300, SEED, directory, pause_s=(0.5, 2.0), over_s=10.0)
    print(run)
    assert run.verdict.is_exactly_once, run.verdict
    assert run.verdict.records == run.inputs
    assert run.kills["brokers"]
    assert run.kills["processes"]
    assert (run.left_open, run.held_back) == (0, 0)
