"""Every planted bug is seen: by the seed that saw it first, by a later one, or by its script."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.hunt import Catch, hunt, known
from tests.simulation.mutants.plant import Mutant, NotPlanted, planted

QUICK_S = 0.5
CAUGHT = known()
NEVER = Catch("", "", 15.0)


def _cases() -> list[object]:
    """Those that are seen at once belong to every run, the others to the slow ones."""
    return [
        pytest.param(
            mutant,
            id=mutant.name,
            marks=[] if CAUGHT.get(mutant.name, NEVER).took_s <= QUICK_S else [pytest.mark.slow],
        )
        for mutant in MUTANTS
        if not mutant.equivalent and not mutant.script
    ]


@pytest.mark.parametrize("mutant", _cases())
def test_the_simulator_sees_a_planted_bug(mutant: Mutant) -> None:
    assert hunt(mutant, CAUGHT.get(mutant.name, NEVER).seed), f"{mutant.name} is not seen"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.script], ids=lambda m: m.name)
def test_its_script_sees_a_rare_bug(mutant: Mutant) -> None:
    planting = [sys.executable, "-m", "tests.simulation.mutants", "--script", mutant.name]
    end = subprocess.run(planting, capture_output=True, text=True, check=False)
    assert end.returncode == 1, end.stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_planted_bug_still_applies(mutant: Mutant) -> None:
    with planted(mutant):
        pass


def test_a_bug_that_no_longer_applies_fails_loudly() -> None:
    gone = Mutant("gone", "raftlog.core.quorum:quorum_size", "no such text", "")
    with pytest.raises(NotPlanted), planted(gone):
        pass
