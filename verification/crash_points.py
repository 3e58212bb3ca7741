"""Crashes a broker after every disk operation of a fixed workload: ``python -m verification.crash_points``.

Decides: the crash points. Each disk operation of the workload is the last one before a kill in one run, and
the last one before a power loss in another. A power loss keeps synced data, and any part of the other data.
Leaves to others: brokers, storage and recovery, which are production code in the simulator, and the checks
(``verification.simulator.checker``, ``verification.simulator.convergence``).

There are three brokers; a run of the workload counts the disk operations of one broker, so a new operation
automatically becomes a new crash point.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from verification.crash_workload import KILL, POWER_LOSS, CrashPoint, Workload

POINTS_A_PROCESS: Final = 20


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Result of the enumeration: row 7 of the scoreboard."""

    operations: int
    crashes: int
    power_losses: int
    recovered: int
    failures: tuple[str, ...]
    seconds: float

    def last_line(self) -> str:
        """Return the result as one line for users and scripts."""
        return (
            f"operations={self.operations} crashes={self.crashes} power_losses={self.power_losses} "
            f"recovered={self.recovered} failed={len(self.failures)} seconds={self.seconds:.1f}"
        )


def run_point(point: CrashPoint | None, *, keeps_lines: bool = False) -> Workload:
    """Run the workload with one crash. ``violations`` is empty after a complete recovery; the brokers' log
    lines are discarded.
    """
    logging.disable(logging.CRITICAL)
    was_enabled = gc.isenabled()
    gc.disable()
    workload = Workload(point, keeps_lines=keeps_lines)
    try:
        workload.run()
    finally:
        logging.disable(logging.NOTSET)
        if was_enabled:
            gc.enable()
            gc.collect()
    return workload


def enumerate_points(stride: int = 1) -> tuple[int, list[CrashPoint]]:
    """Return the number of disk operations of the workload, and a crash point for every ``stride``-th
    operation.
    """
    workload = run_point(None)
    if workload.violations:
        raise RuntimeError(f"the workload fails without a crash: {workload.violations[0]}")
    operations = workload.steps[-1][1]
    points = [
        CrashPoint(operation, manner)
        for operation in range(1, operations + 1, stride)
        for manner in (KILL, POWER_LOSS)
    ]
    return operations, points


def run_all(stride: int = 1, jobs: int = 1) -> Outcomes:
    """Run the crash point of every operation, or of every ``stride``-th operation."""
    began = time.monotonic()
    operations, points = enumerate_points(stride)
    failures = tuple(failure for failure in _fail(points, jobs) if failure)
    return Outcomes(
        operations=operations,
        crashes=sum(point.manner == KILL for point in points),
        power_losses=sum(point.manner == POWER_LOSS for point in points),
        recovered=len(points) - len(failures),
        failures=failures,
        seconds=time.monotonic() - began,
    )


def _fail(points: list[CrashPoint], jobs: int) -> Iterator[str]:
    if jobs == 1:
        yield from map(_failure, points)
        return
    pieces = [points[start : start + POINTS_A_PROCESS] for start in range(0, len(points), POINTS_A_PROCESS)]
    gc.freeze()
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for failures in pool.imap(_failures, pieces):
            yield from failures


def _failures(points: list[CrashPoint]) -> list[str]:
    gc.disable()
    return [_failure(point) for point in points]


def _failure(point: CrashPoint) -> str:
    """Return the first violation after this crash; empty if there is none."""
    violations = run_point(point).violations
    if not violations:
        return ""
    return (
        f"{point.manner} after operation {point.operation}: {violations[0].invariant}: {violations[0].detail}"
    )


def main() -> int:
    """Run the enumeration; return the exit status: 1 if any recovery failed."""
    parser = argparse.ArgumentParser(prog="python -m verification.crash_points", description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="only every n-th operation (default: 1)")
    parser.add_argument("--at", type=int, help="only this operation, with its timeline")
    parser.add_argument(
        "--kill", action="store_true", help="with --at: kill the process instead of a power loss"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)"
    )
    options = parser.parse_args()
    if options.at is not None:
        workload = run_point(CrashPoint(options.at, KILL if options.kill else POWER_LOSS), keeps_lines=True)
        print(workload.trace.timeline())
        return 1 if workload.violations else 0
    outcomes = run_all(options.stride, options.jobs)
    for failure in outcomes.failures:
        print(failure)
    print(outcomes.last_line())
    return 1 if outcomes.failures else 0


if __name__ == "__main__":
    sys.exit(main())
