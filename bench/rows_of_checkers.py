"""Measures row 4 of the scoreboard: the errors and the speed of the checker of histories.

Decides: which verdicts count as errors of the checker. Leaves to others: the histories. The smallest
histories with an anomaly, the similar histories without an anomaly and the random histories come from the
tests of ``chaos.checkers``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

from chaos.checkers import Severity, check
from chaos.history import History
from tests.helpers.clean_histories import clean_history
from tests.unit.chaos import test_checkers as without_transactions
from tests.unit.chaos import test_transaction_checkers as with_transactions
from tests.unit.chaos.test_random_histories import FAULTS

KINDS_MIN: Final = 20  # each with a guilty history and a near miss
CLEAN_HISTORIES: Final = 10_000
FAULTY_HISTORIES: Final = 30  # for each planted fault
SPEED_MIN: Final = 50_000  # operations a second
LONG_SENDS: Final = 840_000  # sends in a history of a million operations

Figures = dict[str, int | float | str]


def checker_quality(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 4: return its figures, and whether its target is reached."""
    share = 100 if is_quick else 1
    pairs = [*_pairs()]
    missed = [kind for kind, guilty, _ in pairs if kind not in _kinds(guilty)]
    accused = [kind for kind, _, near in pairs if kind in _kinds(near)]
    alarms = sum(map(_is_accused, range(CLEAN_HISTORIES // share)))
    overlooked = sum(_overlooked(FAULTY_HISTORIES if share == 1 else 1))
    history = without_transactions.innocent_history(1, LONG_SENDS // share)
    operations = len(history.sends) + len(history.polls) + len(history.final)
    began = time.process_time()
    alarms += bool(check(history))
    took_s = time.process_time() - began
    kinds = {kind for kind, _, _ in pairs}
    figures: Figures = {
        "kinds of anomalies": len(kinds),
        "smallest guilty histories": len(pairs),
        "guilty histories missed": len(missed),
        "near misses": len(pairs),
        "near misses accused": len(accused),
        "random clean histories": CLEAN_HISTORIES // share,
        "false alarms": alarms,
        "kinds of planted faults": len(FAULTS),
        "histories with planted faults": len(FAULTS) * (FAULTY_HISTORIES if share == 1 else 1),
        "planted faults missed": overlooked,
        "operations of the longest history": operations,
        "seconds for it": round(took_s, 1),
        "operations a second": round(operations / took_s),
    }
    is_right = not (missed or accused or alarms or overlooked) and len(kinds) >= KINDS_MIN
    return figures, is_right and operations / took_s >= SPEED_MIN


def _pairs() -> Iterator[tuple[str, History, History]]:
    """Each kind of anomaly, a history that has it, and a history that nearly has it."""
    for kind, guilty, near in without_transactions.CASES:
        yield kind, guilty().history, near().history
    for kind, _, guilty_operations, near_operations in with_transactions.CASES:
        yield kind, with_transactions.history(guilty_operations), with_transactions.history(near_operations)


def _kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def _is_accused(seed: int) -> bool:
    found = check(clean_history(seed, 20 + seed % 180))
    return any(anomaly.severity is not Severity.NORMAL for anomaly in found)


def _overlooked(histories: int) -> Iterator[bool]:
    """For each planted fault in each random history: whether the checker missed the fault."""
    for fault, kinds in FAULTS.items():
        for seed in range(histories):
            history = clean_history(seed, 120)
            fault(random.Random(seed), history)
            yield not _kinds(history) & kinds
