"""Adds up the flights of each carrier with Spark, as a stream between topics; Spark's driver is killed.

The query is ``spark_io.examples.carrier_totals``. Its second run continues where the first was killed: the
totals are right, and the topic has each total once.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from chaos.demo.report import compare, say
from raftlog import Client
from raftlog.extras import install_command

TOTALS = "carrier-totals"
PATIENCE_S = 300.0
LOOK_S = 0.1
_Total = tuple[int, int, int]  # flights, flights that left, minutes of delay


def why_not() -> str | None:
    """Return the reason why Spark cannot run on this machine; None if Spark can run."""
    if shutil.which("java") is None:
        return "there is no Java; install a JRE of version 17 or newer, and run the demo again"
    if find_spec("pyspark") is None:
        return f"there is no pyspark; {install_command('spark')}, and run the demo again"
    return None


def run(bootstrap: str, topic: str, rows: Sequence[tuple[str, bytes]], directory: Path) -> bool:
    """Add up the flights with Spark, and print the figures; return whether all totals are right.

    Returns True if Spark cannot run on this machine.
    """
    reason = why_not()
    if reason is not None:
        say(f"skipping Spark: {reason}")
        return True
    began = time.monotonic()
    with Client(bootstrap) as client:
        client.topics.create(TOTALS, partitions=2, replication_factor=3, exist_ok=True)
        driver = _start(bootstrap, topic, directory)
        say(
            f"Spark adds up the flights of each carrier, from {topic!r} to {TOTALS!r}: "
            f"driver (pid {driver.pid})"
        )
        if not _kill_at_work(client, driver):
            return False
        driver = _start(bootstrap, topic, directory)
        say(f"the driver starts again (pid {driver.pid})")
        if not _ended(driver, directory):
            return False
        found = _totals(client)
    return verdict(found, rows, time.monotonic() - began)


def verdict(found: dict[str, list[_Total]], rows: Sequence[tuple[str, bytes]], took_s: float) -> bool:
    """Print the figures; return whether the last total of each carrier is right, and whether no total is
    repeated.
    """
    wanted = _added(rows)
    right = sum(totals[-1] == wanted.get(carrier) for carrier, totals in found.items())
    count = sum(map(len, found.values()))
    once = sum(len({flights for flights, _, _ in totals}) for totals in found.values())
    rising = all(before[0] < after[0] for totals in found.values() for before, after in _pairs(totals))
    say(f"aggregated in {took_s:.1f} s, including both starts of Spark")
    results = [
        compare("carriers with the right total", len(wanted), right),
        compare("totals that occur once", count, once),
    ]
    is_good = all(results) and rising
    say("each flight counts once, although the driver was killed" if is_good else "THE DEMO FAILED")
    return is_good


def _start(bootstrap: str, topic: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start the driver of Spark in its own process group, so that its JVM and workers are killed with it."""
    command = [sys.executable, "-P", "-m", "spark_io.examples.carrier_totals", "--servers", bootstrap]
    command += ["--flights", topic, "--totals", TOTALS, "--checkpoint", str(directory / "checkpoint")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false "
        "--conf spark.sql.shuffle.partitions=2 pyspark-shell",
    }
    with (directory / "spark.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def _kill_at_work(client: Client, driver: subprocess.Popen[bytes]) -> bool:
    """Kill the driver once its first totals can be read; return whether the driver was still at work."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := _totals(client)) and driver.poll() is None:
        if time.monotonic() > deadline:
            _kill(driver)
            say(f"THE DEMO FAILED: no total within {PATIENCE_S:.0f} s")
            return False
        time.sleep(LOOK_S)
    is_running = driver.poll() is None
    _kill(driver)
    flights = sum(totals[-1][0] for totals in seen.values())
    if is_running:
        say(f"kill -9: the driver, after {flights:,} flights")
    else:
        say(f"the driver ended before it could be killed, with status {driver.returncode}")
    return True


def _ended(driver: subprocess.Popen[bytes], directory: Path) -> bool:
    try:
        status = driver.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        _kill(driver)
        status = driver.returncode
    if status:
        say((directory / "spark.log").read_text(errors="replace")[-2_000:])
        say(f"THE DEMO FAILED: Spark ended with {status}")
    return status == 0


def _kill(driver: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def _totals(client: Client) -> dict[str, list[_Total]]:
    """Return the totals of each carrier in order, as readers of committed records see them."""
    found: dict[str, list[_Total]] = defaultdict(list)
    for number in range(2):
        partition, offset = client.partition(TOTALS, number), 0
        while (chunk := partition.read(offset)).next_offset > offset:
            for message in chunk.messages:
                total = json.loads(message.value or b"{}")
                carrier = (message.key or b"").decode()
                found[carrier].append((total["flights"], total["departed"], total["delay_minutes"]))
            offset = chunk.next_offset
    return found


def _added(rows: Sequence[tuple[str, bytes]]) -> dict[str, _Total]:
    """Compute the totals of each carrier without Spark."""
    flights, departed, minutes = Counter[str](), Counter[str](), Counter[str]()
    for _, value in rows:
        flight = json.loads(value)
        flights[flight["carrier"]] += 1
        if flight["dep_delay"].lstrip("-").isdigit():
            departed[flight["carrier"]] += 1
            minutes[flight["carrier"]] += int(flight["dep_delay"])
    return {carrier: (count, departed[carrier], minutes[carrier]) for carrier, count in flights.items()}


def _pairs(totals: list[_Total]) -> list[tuple[_Total, _Total]]:
    return [*itertools.pairwise(totals)]
