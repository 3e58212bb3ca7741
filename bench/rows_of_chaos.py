"""Measures rows 5, 6, 8, 9, 10 and 12 of the scoreboard: faults of real clusters, disks and ports."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from api.cli.closed_loop import percentile
from bench import nats_outages, rabbitmq_outages
from bench.elections import spurious_elections
from bench.outages import ISOLATION, KILL, STOP, TRANSFER, outages
from chaos.exactly_once.run import copy_under_faults
from chaos.harness import power_cycles
from chaos.harness.controls import lying_fsync
from verification.abuse.suite import run_suite as run_abuse
from verification.corruption.suite import run_suite

JOBS: Final = os.cpu_count() or 1
SOAKED: Final = (3, 5)  # brokers
REPORTS: Final = Path(".cache")
TRIALS: Final = 100
PEER_TRIALS: Final = 12  # a peer takes many seconds to recover
OUTAGE_PLACES: Final = {"p50": 50, "p99": 99, "longest": 100}
OUTAGE_S_MAX: Final = 1.0
TRANSFER_S_MAX: Final = 0.1
TRANSACTIONS_MIN: Final = 100_000
COPIES: Final = 1_000_000

Figures = dict[str, int | float | str]


def soak(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 5: `raftlog chaos run` with three and with five brokers, at the same time."""
    figures: Figures = {}
    kept = True
    with ThreadPoolExecutor() as pool:
        records = list(pool.map(partial(_run, 1 if is_quick else 60), SOAKED))
    for brokers, record in zip(SOAKED, records, strict=True):
        counts = record["counts"]
        kinds = {fault["fault"] for fault in record["injected"]}
        figures |= {
            f"{brokers} brokers: verdict": record["verdict"],
            f"{brokers} brokers: minutes": round(record["scenario"]["seconds"] / 60),
            f"{brokers} brokers: faults": len(record["injected"]),
            f"{brokers} brokers: kinds": len(kinds),
            f"{brokers} brokers: acknowledged": counts["acknowledged"],
            f"{brokers} brokers: lost": counts["lost"],
            f"{brokers} brokers: duplicated": counts["duplicated"],
            f"{brokers} brokers: anomalies": len(record["anomalies"]),
            f"{brokers} brokers: problems": len(record["problems"]),
            f"{brokers} brokers: acknowledged of all sends, %": round(100 * counts["ok_rate"], 2),
            f"{brokers} brokers: the same without faults, %": round(100 * counts["ok_rate_quiet"], 2),
            f"{brokers} brokers: seed": record["scenario"]["seed"],
        }
        enough = len(record["injected"]) >= 600 and len(kinds) >= 15
        kept &= record["verdict"] == "valid" and not record["problems"]
        kept &= enough and counts["ok_rate_quiet"] >= 0.95
    return figures, kept and sum(record["counts"]["acknowledged"] for record in records) >= 1_000_000


def _run(minutes: int, brokers: int) -> dict[str, Any]:
    """Run ``raftlog chaos run`` once; return its result.

    The report and the history of the run stay on the disk until the next run.
    """
    report = REPORTS / f"soak-{brokers}"
    shutil.rmtree(report, ignore_errors=True)
    command = [sys.executable, "-P", "-m", "raftlog", "chaos", "run", "--brokers", str(brokers)]
    subprocess.run([*command, "--minutes", str(minutes), "--report", str(report)], check=False)
    found: dict[str, Any] = json.loads((report / "report.json").read_bytes())
    return found


def power_losses(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 6: brokers on disks that lose unsynced writes.

    As a control, also on disks that report a sync without performing it.
    """
    if reason := lying_fsync.missing():
        raise RuntimeError(f"row 6 cannot be measured here: {reason}")
    cycles, controls = (3, 1) if is_quick else (200, 20)
    seed = secrets.randbits(32)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raftlog-power-") as name:
        tally, _ = power_cycles.run(cycles, seed, Path(name) / "cluster", print)
        guilty = [lying_fsync.run(seed + n, Path(name) / f"control-{n}").is_guilty for n in range(controls)]
    figures: Figures = {
        "cycles": tally.cycles,
        "brokers that lost power": tally.losses,
        "acknowledged": tally.acknowledged,
        "acknowledged and lost": tally.lost,
        "anomalies": len(tally.anomalies),
        "brokers that did not start again": len(tally.unbootable),
        "bytes of logs that were not synced and lost": tally.bytes_lost,
        "controls with lying syncs": controls,
        "controls found guilty": sum(guilty),
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
    }
    return figures, not tally.is_broken and sum(guilty) >= 0.95 * controls and not is_quick


def unavailability(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 9: the gaps between acknowledgements when a leader fails, for raftlog and other systems."""
    trials, peer_trials = (8, 4) if is_quick else (TRIALS, PEER_TRIALS)
    command = [sys.executable, "-P", "-m", "bench.raftlog_outages", str(trials)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    ours: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    idle_s, busy_s = (10.0, 10.0) if is_quick else (600.0, 120.0)
    idle, busy, stored = spurious_elections(idle_s, busy_s)
    elections: Figures = {
        "idle seconds": round(idle_s),
        "elections in this time": idle,
        "busy seconds": round(busy_s),
        "elections in that time": busy,
        "records stored in that time": stored,
    }
    peers, missing = _peers(peer_trials)
    figures, is_kept = outage_figures(ours, peers)
    return {**figures, **missing, **elections}, is_kept and not idle + busy


def _peers(trials: int) -> tuple[dict[str, dict[str, list[float]]], Figures]:
    """The gaps of each other system, and for each system that cannot be measured here the reason."""
    found: dict[str, dict[str, list[float]]] = {}
    missing: Figures = {}
    if reason := nats_outages.missing():
        missing["NATS is not measured"] = reason
    else:
        with nats_outages.NatsOutages.started() as nats:
            found["NATS"] = outages(nats, trials)
    if reason := rabbitmq_outages.missing():
        missing["RabbitMQ is not measured"] = reason
    else:
        with rabbitmq_outages.RabbitOutages.started() as rabbit:
            found["RabbitMQ"] = outages(rabbit, max(1, trials // 4))  # a minute for each stopped node
    return found, missing


def outage_figures(
    ours: Mapping[str, Sequence[float]], peers: Mapping[str, Mapping[str, Sequence[float]]]
) -> tuple[Figures, bool]:
    """The figures of row 9: raftlog's gaps in milliseconds, and as fractions of the gaps of other systems.

    The arguments are gaps in seconds, by kind of failure.
    """
    figures: Figures = {"trials of each kind": len(ours[KILL])}
    figures |= {f"the same with {name}": len(found[KILL]) for name, found in peers.items()}
    kept = {KILL, STOP, ISOLATION, TRANSFER} <= ours.keys()
    for kind, gaps in ours.items():
        for name, place in OUTAGE_PLACES.items():
            gap_s = percentile(sorted(gaps), place)
            figures[f"{kind}: {name}, ms"] = round(1000 * gap_s)
            if name == "p99":
                kept &= gap_s <= (TRANSFER_S_MAX if kind == TRANSFER else OUTAGE_S_MAX)
        median_s = percentile(sorted(gaps), 50)
        for peer, theirs in peers.items():
            if kind not in theirs:
                figures[f"{kind}: {peer}"] = "not measured"
                continue
            rising = sorted(theirs[kind])
            figures[f"{kind}: p50 of {peer}, ms"] = round(1000 * percentile(rising, 50))
            figures[f"{kind}: longest of {peer}, ms"] = round(1000 * rising[-1])
            figures[f"{kind}: p50 as a part of that of {peer}"] = round(median_s / percentile(rising, 50), 2)
    return figures, kept


def exactly_once(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 10: copies in transactions of ten records; brokers and copying processes are killed."""
    seed = secrets.randbits(32)
    with tempfile.TemporaryDirectory(prefix="raftlog-exactly-once-") as name:
        run = copy_under_faults(COPIES // 100 if is_quick else COPIES, seed, Path(name))
    figures: Figures = {
        "inputs": run.inputs,
        "visible transactions": run.verdict.transactions,
        "inputs lost": run.verdict.lost,
        "inputs copied twice": run.verdict.doubled,
        "outputs without an input": run.verdict.foreign,
        "torn transactions": run.verdict.torn,
        "transactions that stay open": run.left_open,
        "partitions that hold readers back": run.held_back,
        "brokers killed": run.kills["brokers"],
        "copying processes killed": run.kills["processes"],
        "seed": seed,
        "seconds": run.seconds,
    }
    wrong = run.left_open or run.held_back or not run.verdict.is_exactly_once
    return figures, not wrong and run.verdict.transactions >= TRANSACTIONS_MIN


def corruption(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 8: damage on the disk of one replica, and at different places on the disks of all three."""
    cases, all_replicas = (20, 5) if is_quick else (1000, 200)
    found = run_suite(cases, all_replicas, jobs=JOBS)
    figures: Figures = {
        "cases with one damaged replica": found.cases,
        "cases with all replicas damaged": found.all_replicas,
        "detected": found.detected,
        "harmless, as was shown": found.harmless,
        "missed": found.missed,
        "replicas repaired": found.repaired,
        "acknowledged and lost": found.lost,
        "served damaged": found.served_damaged,
        "failed": found.failed,
        "seconds": round(found.seconds, 1),
        **{f"not detected: {reason}": number for reason, number in found.reasons},
    }
    return figures, found.is_good and not is_quick


def abuse(is_quick: bool) -> tuple[Figures, bool]:
    """Measure row 12: attacks on three real brokers."""
    began = time.monotonic()
    found = run_abuse(scale=0.1 if is_quick else 1.0)
    took_s = time.monotonic() - began
    attacks = found.results[1:]
    figures: Figures = {
        "attacks": len(attacks),
        "requests and connections": sum(result.responses.total() for result in attacks),
        "acknowledged to the bystander": found.acknowledged,
        "failures": "; ".join(found.failures)[:500] or 0,
        "loops held for 50 ms": sum(result.held for result in attacks),
        "looks at a loop that came 50 ms late, for want of a processor as well": sum(
            result.late for result in attacks
        ),
        "beyond their bounds": ", ".join(r.name for r in attacks if not r.keeps_bounds) or 0,
        "seconds": round(took_s, 1),
        **{result.name: result.line for result in found.results},
    }
    is_kept = not found.failures and all(result.keeps_bounds for result in attacks) and took_s <= 600
    return figures, is_kept
