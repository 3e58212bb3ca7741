"""``raftlog chaos run``: every kind of fault has an effect, the history is valid, and the report says so."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from chaos.harness.faults import FAULTS
from chaos.harness.faults.steps import Fault
from chaos.harness.stage import Stage
from raftlog.__main__ import COMMAND

pytestmark = pytest.mark.e2e

LAST_LINE = re.compile(
    r"verdict=(?P<verdict>\w+) acknowledged=(?P<acknowledged>\d+) lost=(?P<lost>\d+) "
    r"duplicated=(?P<duplicated>\d+) transactions=(?P<transactions>\d+) anomalies=(?P<anomalies>\d+) "
    r"faults=(?P<faults>\d+) "
    r"kinds=(?P<kinds>\d+) report=(?P<report>.+)"
)


def chaos(*arguments: str | Path, within_s: float) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    command = [*COMMAND, "chaos", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=False)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The last line of the output."""
    found = LAST_LINE.fullmatch(done.stdout.splitlines()[-1]) if done.stdout else None
    if found is None:
        print(done.stdout, done.stderr, sep="\n")  # whole: the reason comes before the logs of brokers
    assert found is not None, f"no result, exit status {done.returncode}"
    return found.groupdict()


ONE_OF_EACH_FAMILY = {
    *("kill", "isolate", "slow-close", "latency", "drop-all", "full-disk", "clock-jump", "little-cpu"),
    *("power-loss", "transfer-leaders", "move-replicas", "restore-copy"),
}


def possible(kinds: Collection[str]) -> list[Fault]:
    """Those of these kinds that this machine can inject.

    Those that leave no broker come before the damages, which wait until the cluster is healthy again.
    """
    faults = [fault for fault in Stage().choose_faults([], 3) if fault.name in kinds]
    faults.sort(key=lambda fault: (fault.is_damage, fault.name in ("kill-all", "power-loss-of-all")))
    return faults


def one_after_another(faults: Sequence[Fault], seconds: float) -> str:
    """A scenario with each of these faults."""
    waits = 20 + 8 * sum(fault.is_damage for fault in faults)
    lines = [f"seconds = {len(faults) * seconds + waits}\nbrokers = 3\n"]
    for number, name in enumerate(fault.name for fault in faults):
        lines.append(f'[[faults]]\nfault = "{name}"\nat_s = {number * seconds}\nseconds = {seconds - 1}\n')
    return "\n".join(lines)


# requirement: N4 F6
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(ONE_OF_EACH_FAMILY, id="one of each family"),
        pytest.param(set(FAULTS), id="all", marks=pytest.mark.slow),
    ],
)
def test_every_kind_of_fault_has_an_effect_and_breaks_no_promise(directory: Path, kinds: set[str]) -> None:
    faults = possible(kinds)
    scenario = directory / "all.toml"
    scenario.write_text(one_after_another(faults, 5.0))
    done = chaos("run", "--scenario", scenario, "--report", directory / "report", within_s=500)
    last = told(done)
    print(done.stderr[-3000:], done.stdout)
    record = json.loads((directory / "report" / "report.json").read_text())
    effects = {fault["fault"]: fault["effects"] for fault in record["injected"]}
    late = f"an effect was not within its five seconds: {effects}, {last}"
    assert set(effects) == {fault.name for fault in faults}, late
    assert min(effects.values()) > 0, late
    assert (last["verdict"], last["lost"], last["duplicated"], done.returncode) == ("valid", "0", "0", 0)
    assert int(last["acknowledged"]) > 1000
    assert record["counts"]["ok_rate_quiet"] >= 0.95
    assert min(record["counts"]["commits"], record["counts"]["committed_reads"]) > 50
    assert min(record["counts"][f"transactions_{end}"] for end in ("committed", "aborted")) > 25
    assert Path(last["report"]).exists()


def test_a_short_fault_of_a_link_lasts_until_there_is_traffic(directory: Path) -> None:
    # A toxic acts on bytes, and a connection between two brokers may carry none for a while.
    kinds = ["limit-data", "latency", "reset", "timeout"]
    scenario = directory / "short.toml"
    lines = [
        f'[[faults]]\nfault = "{kind}"\nat_s = {3 * number}\nseconds = 0.01\n'
        for number, kind in enumerate(kinds, 1)
    ]
    scenario.write_text("seconds = 18\nbrokers = 3\n\n" + "\n".join(lines))
    done = chaos("run", "--scenario", scenario, "--report", directory / "report", within_s=120)
    record = json.loads((directory / "report" / "report.json").read_text())
    effects = {fault["fault"]: fault["effects"] for fault in record["injected"]}
    assert set(effects) == set(kinds), (effects, done.stdout[-2000:])
    assert min(effects.values()) > 0, effects


# requirement: N4
def test_a_leader_with_a_full_disk_hands_its_leaderships_over(directory: Path) -> None:
    scenario = directory / "full.toml"
    fault = 'fault = "full-disk"\ntarget = "broker 2"\nat_s = 3\nseconds = 12\n'
    scenario.write_text(f"seconds = 18\nbrokers = 3\n\n[[faults]]\n{fault}")
    done = chaos("run", "--scenario", scenario, "--report", directory / "report", within_s=150)
    assert told(done)["verdict"] == "valid", done.stdout[-2000:]
    record = json.loads((directory / "report" / "report.json").read_text())
    (full,) = record["injected"]
    rows = [row for row in record["leaderships"] if row["leader"] is not None]
    before = leaders(rows, full["begun_s"])
    assert 2 in before.values()
    at_its_end = leaders(rows, full["ended_s"] - 1)
    assert set(at_its_end.values()) == {1, 3}
    assert at_its_end.keys() == before.keys(), "every partition has a leader with room"


# requirement: N4
def test_a_leader_with_a_read_only_disk_is_replaced_where_there_are_records(directory: Path) -> None:
    scenario = directory / "read-only.toml"
    fault = 'fault = "read-only-disk"\ntarget = "broker 2"\nat_s = 3\nseconds = 8\n'
    scenario.write_text(f"seconds = 14\nbrokers = 3\n\n[[faults]]\n{fault}")
    done = chaos("run", "--scenario", scenario, "--report", directory / "report", within_s=150)
    assert told(done)["verdict"] == "valid", done.stdout[-2000:]
    record = json.loads((directory / "report" / "report.json").read_text())
    (broken,) = record["injected"]
    rows = [row for row in record["leaderships"] if row["leader"] is not None]
    before, at_its_end = (leaders(rows, at_s) for at_s in (broken["begun_s"], broken["ended_s"] - 1))
    written = min(partition for partition, leader in before.items() if leader == 2)
    assert at_its_end[written] in (1, 3)
    log = (directory / "report" / "broker-2" / "log").read_text()
    assert "Read-only file system" in log
    assert "is served again" in log


def leaders(rows: list[dict[str, Any]], at_s: float) -> dict[tuple[str, int], int]:
    """The leader of each partition at this time of a report."""
    return {(row["topic"], row["partition"]): row["leader"] for row in rows if row["at_s"] <= at_s}


@pytest.mark.slow
def test_a_run_is_replayed(directory: Path) -> None:
    first = chaos(
        *("run", "--minutes", "0.1", "--seed", "5", "--faults", "kill,pause"),
        *("--report", directory / "first"),
        within_s=120,
    )
    again = chaos(
        *("replay", directory / "first" / "report.json", "--report", directory / "again"), within_s=120
    )
    records = [json.loads((directory / name / "report.json").read_text()) for name in ("first", "again")]
    assert records[0]["scenario"] == records[1]["scenario"]
    assert told(first)["verdict"] == told(again)["verdict"] == "valid"


def test_a_fault_that_cannot_be_injected_is_refused(directory: Path) -> None:
    done = chaos("run", "--faults", "kil", "--report", directory / "report", within_s=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no fault 'kil'" in done.stderr


def test_faults_are_listed(directory: Path) -> None:
    done = chaos("faults", "-o", "json", within_s=60)
    assert {row["fault"] for row in json.loads(done.stdout)} == set(FAULTS)
