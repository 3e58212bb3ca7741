"""``make bench``: run the suite and write ``docs/benchmarks.md``.

``--quick`` takes about three minutes and omits Kafka; ``--only ROW`` measures one row. Both print
the page and write nothing, unless ``--output DIRECTORY`` is given.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from bench import (
    rows_of_clients,
    rows_of_delays,
    rows_of_groups,
    rows_of_growth,
    rows_of_profiles,
    rows_of_records,
    rows_of_spark,
    rows_of_standing,
    rows_of_tags,
    rows_of_transactions,
)
from bench.report import Section, checked_out, page
from bench.suite import Bench

ROWS: dict[str, Callable[[Bench], Awaitable[Section]]] = {
    "produce": rows_of_records.produce,
    "synchronous": rows_of_records.synchronous,
    "end-to-end": rows_of_records.end_to_end,
    "consume": rows_of_records.consume,
    "http": rows_of_clients.http_json,
    "client": rows_of_clients.python_client,
    "idle": rows_of_standing.idle,
    "failover": rows_of_standing.failover,
    "growth": rows_of_growth.growth,
    "join": rows_of_groups.join,
    "commits": rows_of_groups.commits,
    "consumer": rows_of_groups.consumer,
    "transactions": rows_of_transactions.throughput,
    "transaction-commit": rows_of_transactions.commit,
    "tags": rows_of_tags.tags,
    "delayed": rows_of_delays.delayed,
    "presets": rows_of_profiles.profiles,
    "spark": rows_of_spark.spark,
}
ALONE = (
    "idle",
    "failover",
    "join",
    "commits",
    "consumer",
    "transactions",
    "transaction-commit",
    "tags",
    "delayed",
    "presets",
    "spark",
)
"""Rows that start clusters of their own.

If only such rows are measured, the shared systems are not started.
"""


async def measure(bench: Bench, names: list[str]) -> list[Section]:
    """Measure these rows. Every started process is ended, also after an error."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    sections = []
    try:
        shared = [name for name in names if name not in ALONE]
        if shared:
            bench.say("starting all systems")
            await bench.start()
        for name in shared:
            bench.say(name)
            sections.append(await ROWS[name](bench))
    finally:
        await bench.stop()
    for name in names:
        if name in ALONE:
            bench.say(name)
            sections.append(await ROWS[name](bench))
    return sections


def main() -> None:
    """Run the command line of the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, no Kafka; about three minutes")
    parser.add_argument("--only", metavar="ROW", choices=ROWS, help=f"one row: {', '.join(ROWS)}")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--output", type=Path, help="write benchmarks.md and images/ into this directory")
    arguments = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    is_whole = not arguments.quick and arguments.only is None
    output: Path | None = arguments.output or (root / "docs" if is_whole else None)
    commit, began = checked_out(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="raftlog-bench-") as directory:
        bench = Bench(
            Path(directory),
            root / ".cache",
            (output or Path(directory)) / "images",
            rounds=3 if arguments.quick else 5,
            seconds=0.5 if arguments.quick else arguments.seconds,
            is_quick=arguments.quick,
        )
        sections = uvloop.run(measure(bench, [arguments.only] if arguments.only else list(ROWS)))
    text = page(sections, commit=commit, took_s=time.monotonic() - began, rounds=bench.rounds)
    if output is None:
        sys.stdout.write(text)
    else:
        output.mkdir(parents=True, exist_ok=True)
        (output / "benchmarks.md").write_text(text)
        bench.say(f"wrote {output / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
