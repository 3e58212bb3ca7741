"""Damages many disks and prints a summary: ``python -m verification.corruption``. With a seed: one case, with
details.
"""

from __future__ import annotations

import argparse
import os
import sys

from verification.corruption.case import Outcome, run_case
from verification.corruption.suite import run_suite

CASES, ALL_REPLICAS = 1000, 200


def main() -> int:
    """Run the cases; return the exit status: 1 if damage lost data, was served, was missed, or was not
    repaired.
    """
    parser = argparse.ArgumentParser(prog="python -m verification.corruption", description=__doc__)
    parser.add_argument(
        "--cases", type=int, default=CASES, help=f"with one damaged replica (default: {CASES})"
    )
    parser.add_argument(
        "--all-replicas", type=int, help="with all replicas damaged, each at another place (default: a fifth)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed of both (default: 0)")
    parser.add_argument("--seed", type=int, help="only this seed; with --all-replicas 1 a case of that kind")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return _tell(run_case(options.seed, all_replicas=bool(options.all_replicas)))
    all_replicas = options.cases // 5 if options.all_replicas is None else options.all_replicas
    summary = run_suite(
        options.cases, all_replicas, first=options.first, jobs=options.jobs, on_outcome=_tell_if_bad
    )
    for reason, count in summary.reasons:
        print(f"not detected: {reason}: {count}")
    print(summary.line())
    return 0 if summary.is_good else 1


def _tell_if_bad(outcome: Outcome) -> None:
    if not outcome.is_good:
        _tell(outcome)


def _tell(outcome: Outcome) -> int:
    for verdict in outcome.verdicts:
        print(f"seed {outcome.seed}: {verdict}")
    for problem in outcome.problems:
        print(f"seed {outcome.seed}: VIOLATION {problem}", flush=True)
    print(f"seed {outcome.seed}: repaired={outcome.repaired}")
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
