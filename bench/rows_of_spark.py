"""Measures raftlog's connector for Spark and, if Maven is installed, Spark's connector for Kafka.

For each connector three brokers run, without other clusters, and a Spark session in a process of its own
(``spark_program``).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from pathlib import Path
from shutil import which

import msgspec

from bench.maven import fetch
from bench.report import Floor, Section, table
from bench.spark_program import PARTITIONS, RECORD_BYTES, TICK_ROWS, Figures, Task
from bench.suite import Bench

RECORDS, QUICK_RECORDS = 200_000, 40_000
TICKS, QUICK_TICKS = 60, 15
TIMEOUT_S = 1_800.0
SOURCE_FLOOR, SINK_FLOOR, TRIGGER_CEILING_MS = 150_000.0, 100_000.0, 400.0
SOURCE_RATIO_FLOOR, SINK_RATIO_FLOOR = 0.7, 0.5
EXACTLY, AT_LEAST = "exactly_once", "at_least_once"
TOPICS = {"source": PARTITIONS, "sunk": PARTITIONS, "ticks": 1, "ticked": 1}
KAFKA = "Kafka connector"
CONNECTOR_BEFORE = "4.1.1"  # used if Maven does not have the connector of this release
PARTS = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")


async def spark(bench: Bench) -> Section:
    """Measure reading, writing and the shortest trigger of both connectors."""
    section = Section(
        "Spark",
        f"A session on two cores reads and writes records of {RECORD_BYTES:,} bytes in {PARTITIONS} "
        f"partitions, as batches: medians of rounds. A trigger copies {TICK_ROWS} records from a topic of "
        "one partition to another, exactly once with our connector. Spark's own connector for Kafka writes "
        "at least once, to brokers that do not fsync; the one of an earlier release has no triggers.",
    )
    if which("java") is None:
        section.tables.append("Not measured: there is no Java.\n")
        return section
    ours = await _raftlog(bench)
    jars = None if bench.is_quick else await asyncio.to_thread(_connector, bench.cache)
    theirs = await _kafka(bench, jars)
    rows = rows_of("raftlog", ours)
    if jars is not None and theirs is not None:
        rows += rows_of(f"{KAFKA} ({jars.name})", theirs)
    section.tables.append(table(["connector", "records/s, or p50 and p90 of a trigger"], rows))
    section.floors += floors(ours, theirs)
    return section


def floors(ours: Figures, theirs: Figures | None) -> list[Floor]:
    source, sink = _median(ours.source), _median(ours.sinks[EXACTLY])
    found = [
        Floor("Spark source, records/s of 1 KB", source, SOURCE_FLOOR),
        Floor("Spark sink, exactly once, records/s of 1 KB", sink, SINK_FLOOR),
        Floor("Spark trigger, p50", _median(ours.triggers_ms), TRIGGER_CEILING_MS, " ms", is_upper=True),
    ]
    if theirs is not None:
        found += [
            Floor(f"Spark source ÷ {KAFKA}", source / _median(theirs.source), SOURCE_RATIO_FLOOR, " x"),
            Floor(
                f"Spark sink, exactly once ÷ {KAFKA}, at least once",
                sink / _median(theirs.sinks[""]),
                SINK_RATIO_FLOOR,
                " x",
            ),
        ]
    return found


def rows_of(name: str, figures: Figures) -> list[list[str]]:
    rows = [[f"{name}: source", f"{_median(figures.source):,.0f}"]]
    for delivery, rates in figures.sinks.items():
        what = delivery.replace("_", " ") or "at least once"
        rows.append([f"{name}: sink, {what}", f"{_median(rates):,.0f}"])
    triggers = "not measured"
    if figures.triggers_ms:
        p50, p90 = _median(figures.triggers_ms), statistics.quantiles(figures.triggers_ms, n=10)[-1]
        triggers = f"{p50:.0f} ms, {p90:.0f} ms"
    return [*rows, [f"{name}: trigger", triggers]]


async def _raftlog(bench: Bench) -> Figures:
    async with bench.brokers_alone() as system:
        for topic, partitions in TOPICS.items():
            await system.create(topic, partitions)
        task = _task(bench, "raftlog", "bootstrap.servers", system.cluster.bootstrap)
        return await _measured(msgspec.structs.replace(task, deliveries=(EXACTLY, AT_LEAST)))


async def _kafka(bench: Bench, jars: Path | None) -> Figures | None:
    if jars is None:
        bench.say(f"the {KAFKA} is left out" + ("" if bench.is_quick else ": no Maven, or no network"))
        return None
    async with bench.kafka_alone("connector") as kafka:
        if kafka is None:
            return None
        for topic, partitions in TOPICS.items():
            await kafka.create(topic, partitions, {})
        task = _task(bench, "kafka", "kafka.bootstrap.servers", kafka.bootstrap)
        # The streams of a connector of an earlier release need classes that this release has moved.
        ticks = 0 if jars.name.endswith(CONNECTOR_BEFORE) else task.ticks
        return await _measured(msgspec.structs.replace(task, class_path=_class_path(jars), ticks=ticks))


def _class_path(jars: Path) -> str:
    """The class path of the connector, without jars that the session already has in another version."""
    return ":".join(str(path) for part in PARTS for path in sorted(jars.glob(f"{part}*.jar")))


def _connector(cache: Path) -> Path | None:
    """The jars of Spark's connector for Kafka: of this release of Spark, or else of an earlier release."""
    import pyspark

    for version in (pyspark.__version__, CONNECTOR_BEFORE):
        artifact = ("org.apache.spark", "spark-sql-kafka-0-10_2.13", version)
        jars = fetch(cache, f"spark-sql-kafka-{version}", [artifact])
        if jars is not None:
            return jars
    return None


def _task(bench: Bench, name: str, server_option: str, servers: str) -> Task:
    return Task(
        format=name,
        server_option=server_option,
        servers=servers,
        records=QUICK_RECORDS if bench.is_quick else RECORDS,
        ticks=QUICK_TICKS if bench.is_quick else TICKS,
        rounds=bench.rounds,
    )


async def _measured(task: Task) -> Figures:
    """Run the task in a process. Raises ``RuntimeError`` with the end of Spark's error output."""
    command = [sys.executable, "-m", "bench.spark_program", msgspec.json.encode(task).decode()]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(
            f"Spark with {task.format} failed: {done.stderr.decode(errors='replace')[-2_000:]}"
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Figures)


def _median(values: list[float]) -> float:
    return statistics.median(values)
