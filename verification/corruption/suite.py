"""Runs many cases of damaged disks, and summarises their results."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from verification.corruption.case import Outcome, run_case

CASES_A_PIECE = 10


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of the cases and their results in a run of many cases."""

    cases: int  # cases with one damaged replica
    all_replicas: int  # cases with each replica damaged in another place
    detected: int
    harmless: int  # not detected, but shown to be harmless; ``reasons`` has kinds and reasons
    missed: int  # neither detected nor shown to be harmless
    repaired: int  # replicas that were repaired from their peers
    lost: int  # acknowledged values that are missing at the end
    served_damaged: int  # reads by consumers that returned other bytes than were acknowledged
    failed: int  # cases with a failed check
    seconds: float
    reasons: tuple[tuple[str, int], ...]

    @property
    def is_good(self) -> bool:
        """True if all checks passed in every case, and no damage was missed."""
        return not (self.lost or self.served_damaged or self.failed or self.missed)

    def line(self) -> str:
        """Return the summary as one line for users and scripts."""
        return (
            f"cases={self.cases} all_replicas={self.all_replicas} detected={self.detected} "
            f"harmless={self.harmless} missed={self.missed} repaired={self.repaired} lost={self.lost} "
            f"served_damaged={self.served_damaged} failed={self.failed} seconds={self.seconds:.0f}"
        )


def run_suite(
    cases: int,
    all_replicas: int,
    *,
    first: int = 0,
    jobs: int = 1,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> Summary:
    """Run cases with consecutive seeds from ``first`` on: cases that damage one replica, and cases that
    damage all.
    """
    began = time.monotonic()
    outcomes: list[Outcome] = []
    for outcome in _all(first, cases, all_replicas, jobs):
        outcomes.append(outcome)
        on_outcome(outcome)
    missed = sum(any(verdict.is_missed for verdict in outcome.verdicts) for outcome in outcomes)
    detected = sum(outcome.is_detected for outcome in outcomes)
    unseen = [verdict for outcome in outcomes for verdict in outcome.verdicts if not verdict.is_detected]
    reasons = Counter(
        f"{verdict.damage.kind} of {verdict.damage.category}: {verdict.harmless or 'MISSED'}"
        for verdict in unseen
    )
    return Summary(
        cases=cases,
        all_replicas=all_replicas,
        detected=detected,
        harmless=len(outcomes) - detected - missed,
        missed=missed,
        repaired=sum(outcome.repaired for outcome in outcomes),
        lost=sum(outcome.lost for outcome in outcomes),
        served_damaged=sum(outcome.served_damaged for outcome in outcomes),
        failed=sum(not outcome.is_good for outcome in outcomes),
        seconds=time.monotonic() - began,
        reasons=tuple(reasons.most_common()),
    )


def _all(first: int, cases: int, all_replicas: int, jobs: int) -> Iterator[Outcome]:
    work = [
        *zip(range(first, first + cases), repeat(False)),
        *zip(range(first, first + all_replicas), repeat(True)),
    ]
    gc.collect()
    gc.freeze()
    if jobs == 1:
        yield from map(_one, work)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_one, work, chunksize=CASES_A_PIECE)


def _one(case: tuple[int, bool]) -> Outcome:
    seed, all_replicas = case
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return run_case(seed, all_replicas=all_replicas)
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()
