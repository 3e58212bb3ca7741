"""``raftlog chaos run``: every kind of fault has an effect, the history is valid, and the report says so."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chaos import stacks
from chaos.consumer_groups.crowd import MODULE as GROUP
from chaos.harness.faults import FAULTS
from chaos.harness.faults.steps import Fault
from chaos.harness.group_load import MEMBERS
from chaos.harness.stage import Stage
from chaos.ports import free_ports
from raftlog.__main__ import COMMAND
from raftlog.testing.waits import eventually
from tests.helpers.command_line import invoke

pytestmark = pytest.mark.e2e

RUN_S = 600  # of a run: its faults, and every wait for a healthy cluster
SHOW_S = 5
NO_SERVER = "http://127.0.0.1:9"
LONG_RUN_S = 1_800  # longer than ``RUN_S``, in which a run ends whose processes have ended

LAST_LINE = re.compile(
    r"verdict=(?P<verdict>\w+) acknowledged=(?P<acknowledged>\d+) lost=(?P<lost>\d+) "
    r"duplicated=(?P<duplicated>\d+) transactions=(?P<transactions>\d+) anomalies=(?P<anomalies>\d+) "
    r"faults=(?P<faults>\d+) "
    r"kinds=(?P<kinds>\d+) report=(?P<report>.+)"
)


def chaos(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The command, run to its end. A run that does not end shows its stacks, and fails the test."""
    command = [*COMMAND, "chaos", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            output, errors = process.communicate(timeout=RUN_S)
        except subprocess.TimeoutExpired:
            stacks.ask(process.pid)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=SHOW_S)
            process.kill()
            output, errors = process.communicate()
            raise AssertionError(f"no end after {RUN_S} s:\n{output}\n{errors}") from None
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The last line of the output."""
    found = LAST_LINE.fullmatch(done.stdout.splitlines()[-1]) if done.stdout else None
    if found is None:
        print(done.stdout, done.stderr, sep="\n")  # whole: the reason comes before the logs of brokers
    assert found is not None, f"no result, exit status {done.returncode}"
    return found.groupdict()


def recorded(directory: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The report of a run that ended."""
    print(done.stderr[-30_000:], done.stdout)
    told(done)
    found: dict[str, Any] = json.loads((directory / "report" / "report.json").read_text())
    return found


OF_A_LINK = {"limit-data", "latency", "reset", "timeout"}
ONE_OF_EACH_FAMILY = OF_A_LINK | {
    *("kill", "isolate", "slow-close", "drop-all", "full-disk", "clock-jump", "little-cpu"),
    *("power-loss", "transfer-leaders", "move-replicas", "restore-copy", "copy-beside"),
}
FAULT_S = 2.0
SHORT_S = 0.01  # of a toxic, which acts on bytes: it lasts until the link has carried some
FEW_PRODUCERS = 2  # one sends JSON, one batches; most of the CPU is that of the load


def possible(kinds: Collection[str]) -> list[Fault]:
    """Those of these kinds that this machine can inject.

    Those that leave no broker come before the damages, which wait until the cluster is healthy again.
    """
    faults = [fault for fault in Stage().choose_faults([], 3) if fault.name in kinds]
    faults.sort(key=lambda fault: (fault.is_damage, fault.name in ("kill-all", "power-loss-of-all")))
    return faults


def one_after_another(names: Sequence[str]) -> str:
    """A scenario with each of these faults, all of which are injected."""
    lines = [f"seconds = 5\nbrokers = 3\nproducers = {FEW_PRODUCERS}\none_by_one = true\n"]
    for name in names:
        seconds = SHORT_S if name in OF_A_LINK else FAULT_S
        lines.append(f'[[faults]]\nfault = "{name}"\nat_s = 0\nseconds = {seconds}\n')
    return "\n".join(lines)


# requirement: N4 F6
@pytest.mark.timeout(RUN_S + 60)
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
    scenario.write_text(one_after_another([fault.name for fault in faults]))
    done = chaos("run", "--scenario", scenario, "--report", directory / "report")
    record, last = recorded(directory, done), told(done)
    effects = {fault["fault"]: fault["effects"] for fault in record["injected"]}
    assert set(effects) == {fault.name for fault in faults}, record["left_out"]
    assert min(effects.values()) > 0, effects
    assert (last["verdict"], last["lost"], last["duplicated"], done.returncode) == ("valid", "0", "0", 0)
    assert int(last["acknowledged"]) > 1000
    assert record["counts"]["ok_rate_quiet"] >= 0.95
    assert min(record["counts"]["commits"], record["counts"]["committed_reads"]) > 50
    assert min(record["counts"][f"transactions_{end}"] for end in ("committed", "aborted")) > 25
    assert Path(last["report"]).exists()


@pytest.mark.timeout(2 * RUN_S + 60)
@pytest.mark.slow
def test_a_run_is_replayed(directory: Path) -> None:
    first = chaos(
        *("run", "--minutes", "0.1", "--seed", "5", "--faults", "kill,pause"),
        *("--report", directory / "first"),
    )
    again = chaos(*("replay", directory / "first" / "report.json", "--report", directory / "again"))
    records = [json.loads((directory / name / "report.json").read_text()) for name in ("first", "again")]
    assert records[0]["scenario"] == records[1]["scenario"]
    assert told(first)["verdict"] == told(again)["verdict"] == "valid"


def test_a_fault_that_cannot_be_injected_is_refused(directory: Path) -> None:
    done = invoke(NO_SERVER, "chaos", "run", "--faults", "kil", "--report", str(directory / "report"), code=2)
    assert done.stdout == ""
    assert "there is no fault 'kil'" in done.stderr


def test_faults_are_listed() -> None:
    done = invoke(NO_SERVER, "chaos", "faults", "-o", "json")
    assert {row["fault"] for row in json.loads(done.stdout)} == set(FAULTS)


def test_a_run_whose_cluster_does_not_start_has_a_verdict_and_says_why(directory: Path) -> None:
    report = directory / "report"
    held = free_ports(1)
    scenario = directory / "nothing.toml"
    scenario.write_text("seconds = 1\nfaults = []\n")
    done = chaos("run", "--cluster", f"http://127.0.0.1:{held}", "--scenario", scenario, "--report", report)
    assert told(done)["verdict"] == "unknown"
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "no broker responds" in done.stderr


def processes_of(harness: int, text: str, count: int) -> list[int]:
    """The processes of a run with this text in their commands, once as many have started."""

    def found() -> list[int]:
        listed = subprocess.run(
            ["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        )
        rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
        pids = [int(pid) for pid, parent, args in rows if int(parent) == harness and text in args]
        return pids if len(pids) == count else []

    return eventually(found, what=f"{count} processes with {text}")


@pytest.mark.timeout(RUN_S + 120)
@pytest.mark.parametrize(
    ("text", "count", "problem", "verdict"),
    [
        (GROUP, len(MEMBERS), "members of the consumer group have ended: process 0 does not run", "unknown"),
        ("broker-1/raftlog.toml", 1, "broker 1 does not run after all faults have ended", "valid"),
    ],
)
def test_a_run_whose_processes_have_ended_ends_at_once_and_says_so(
    directory: Path, text: str, count: int, problem: str, verdict: str
) -> None:
    scenario = directory / "long.toml"
    scenario.write_text(f"seconds = {LONG_RUN_S}\nbrokers = 1\nproducers = {FEW_PRODUCERS}\nfaults = []\n")
    asked = ("run", "--scenario", str(scenario), "--report", str(directory / "r"))
    command = [*COMMAND, "chaos", *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            processes_of(process.pid, GROUP, len(MEMBERS))  # they begin once the cluster is ready
            for ended in processes_of(process.pid, text, count):
                os.kill(ended, signal.SIGKILL)
            output, errors = process.communicate(timeout=RUN_S)
        finally:
            process.kill()
    assert (process.returncode, f"verdict={verdict}" in output) == (2, True), output
    assert problem in errors
