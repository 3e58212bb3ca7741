"""Plots how throughput changes as batches, partitions and logs grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.load import Load, System, run
from bench.raftlog_system import RaftlogSystem
from bench.report import Section
from bench.suite import STREAMS, Bench

BATCH_SIZES = (1, 3, 10, 30, 100, 300, 1000)
PARTITION_COUNTS = (1, 2, 4, 8, 16, 32, 64)
LOG_BYTES = 2 << 30
Points = Sequence[tuple[float, float]]


async def growth(bench: Bench) -> Section:
    """Measure and draw three plots of records per second: by batch size, partitions, and log size."""
    section = Section(
        "Growth",
        "Records of 1 KB. The first plot has four requests in flight for each of four partitions, the second "
        "sixteen for all partitions together, and the third four for one partition whose log grows.",
    )
    bench.images.mkdir(parents=True, exist_ok=True)
    for name, label, lines in (
        ("throughput-by-batch.svg", "records in a batch", await _by_batch(bench)),
        ("throughput-by-partitions.svg", "partitions", await _by_partitions(bench)),
        ("throughput-by-log-size.svg", "size of the log, GB", await _by_log_size(bench)),
    ):
        plot(bench.images / name, label, lines, is_logarithmic="log" not in name)
        section.images.append(name)
    return section


def plot(path: Path, label: str, lines: Mapping[str, Points], *, is_logarithmic: bool) -> None:
    """Draw one plot with a line for each system; the vertical axis begins at zero."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot

    mpl.rcParams["svg.hashsalt"] = "raftlog"  # equal points give equal files
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, points in lines.items():
        axes.plot([x for x, _ in points], [y / 1000 for _, y in points], marker="o", label=name)
    if is_logarithmic:
        axes.set_xscale("log", base=2 if label == "partitions" else 10)
        ticks = sorted({x for points in lines.values() for x, _ in points})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.set_ylabel("thousand records/s")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


async def _by_batch(bench: Bench) -> dict[str, list[tuple[float, float]]]:
    peers = [bench.peers[key] for key in ("nats_always", "kafka") if key in bench.peers]
    systems: list[System] = [bench.raftlog, *peers, bench.ceiling]
    lines: dict[str, list[tuple[float, float]]] = {system.name: [] for system in systems}
    for records in BATCH_SIZES[:: 3 if bench.is_quick else 1]:
        bench.say(f"batches of {records}")
        load = Load(
            records=records, record_bytes=1024, streams=STREAMS, in_flight=4, seconds=bench.seconds / 2
        )
        for name, measured in (await bench.in_turn(systems, load)).items():
            lines[name].append((records, measured.records_per_s))
    return lines


async def _by_partitions(bench: Bench) -> dict[str, list[tuple[float, float]]]:
    system = RaftlogSystem(bench.directory / "partitions")
    try:
        await system.start(max(PARTITION_COUNTS))
        systems: list[System] = [system, bench.ceiling]
        lines: dict[str, list[tuple[float, float]]] = {each.name: [] for each in systems}
        for count in PARTITION_COUNTS[:: 3 if bench.is_quick else 1]:
            bench.say(f"{count} partitions")
            load = Load(
                records=100,
                record_bytes=1024,
                streams=count,
                in_flight=max(16 // count, 1),
                seconds=bench.seconds / 2,
            )
            for name, measured in (await bench.in_turn(systems, load)).items():
                lines[name].append((count, measured.records_per_s))
    finally:
        await system.stop()
    return lines


async def _by_log_size(bench: Bench) -> dict[str, list[tuple[float, float]]]:
    system = RaftlogSystem(bench.directory / "growing", retained_bytes=-1)
    points: list[tuple[float, float]] = []
    try:
        await system.start(1)
        size_bytes = 0
        load = Load(records=100, record_bytes=1024, streams=1, in_flight=4, seconds=bench.seconds / 2)
        while size_bytes < (LOG_BYTES // 10 if bench.is_quick else LOG_BYTES):
            measured = await run(system, load)
            size_bytes += (measured.requests + load.in_flight) * 100 * 1024
            points.append((size_bytes / 1e9, measured.records_per_s))
    finally:
        await system.stop()
    return {system.name: points}
