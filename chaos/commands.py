"""Commands of the fault injection: ``raftlog chaos``."""

from __future__ import annotations

import enum
import secrets
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import click

from api.cli.output import REFUSED, WRONG_USAGE, printed, show, wrong_usage
from api.cli.parameters import Argument, Option
from chaos.harness.controls import ControlResult
from raftlog.extras import install_command

if TYPE_CHECKING:
    from chaos.harness.scenario import Scenario
    from chaos.harness.stage import Stage

HistoryArgument = Annotated[
    Path,
    Argument(
        metavar="HISTORY",
        path=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The history: JSON lines, or history.edn of Jepsen.",
    ),
]


def check(history: HistoryArgument) -> None:
    """Check a history of sends and polls for anomalies; ends with 1 if it finds any that are not permitted.

    Ends with 2 if the verdict is unknown. A history has one operation per line, as docs/chaos.md shows. A
    file named *.edn is a history of Jepsen's workload for Kafka-like logs.

    \b
    Examples:
      raftlog chaos check history.jsonl
      raftlog chaos check store/latest/history.edn
    """
    from chaos.checkers import check as anomalies_of
    from chaos.checkers import count_lost, realtime_lags, verdict
    from chaos.history import Outcome
    from chaos.history_files import InvalidHistory, read_history
    from chaos.registers import Verdict

    try:
        found = read_history(history)
    except InvalidHistory as error:
        wrong_usage(str(error))
    anomalies = anomalies_of(found)
    rows = [
        {
            "anomaly": anomaly.kind,
            "severity": anomaly.severity.value,
            "partition": anomaly.partition,
            "detail": anomaly.detail,
        }
        for anomaly in anomalies
    ]
    show(rows)
    judged = verdict(anomalies)
    kinds = Counter(anomaly.kind for anomaly in anomalies if anomaly.is_bad)
    lag_s = max((lag_s for _, lag_s in realtime_lags(found)), default=0.0)
    click.echo(
        f"verdict={judged.value} acknowledged={found.count(Outcome.ACKNOWLEDGED)} "
        f"unknown={found.count(Outcome.UNKNOWN)} lost={count_lost(anomalies)} "
        f"duplicated={kinds['duplicate']} transactions={found.transactions()[Outcome.ACKNOWLEDGED]} "
        f"anomalies={kinds.total()} realtime_lag_s={lag_s:.3f}",
        err=True,
    )
    if judged is not Verdict.VALID:
        raise click.exceptions.Exit(REFUSED if judged is Verdict.INVALID else WRONG_USAGE)


MinutesOption = Annotated[float, Option(min=0.1, help="Duration of the fault injection.")]
BrokersOption = Annotated[int, Option(min=1, help="Number of brokers: 3 or 5.")]
SeedOption = Annotated[int | None, Option(min=0, help="The seed of the faults; default: a new one.")]
FaultsOption = Annotated[
    str | None, Option(help="Only these faults, separated by commas; `raftlog chaos faults` lists all.")
]
ScenarioOption = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        path=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Take the faults from a TOML file instead of a seed.",
    ),
]
ReportOption = Annotated[
    Path | None, Option(metavar="DIR", help="Directory for report, history and logs; default: chaos-SEED.")
]
RecordArgument = Annotated[
    Path,
    Argument(
        metavar="REPORT",
        path=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The report.json of a run.",
    ),
]


ClusterOption = Annotated[
    str | None,
    Option(
        metavar="URL", help="Use a running cluster instead of a new one; several URLs separated by commas."
    ),
]
ToxiproxyOption = Annotated[
    str | None,
    Option(metavar="URL", help="With --cluster: the API of the toxiproxy server between its brokers."),
]


def run(
    minutes: MinutesOption = 10,
    brokers: BrokersOption = 3,
    seed: SeedOption = None,
    faults: FaultsOption = None,
    scenario: ScenarioOption = None,
    cluster: ClusterOption = None,
    toxiproxy: ToxiproxyOption = None,
    report: ReportOption = None,
) -> None:
    """Inject faults into a loaded cluster, and check what its clients saw.

    Without --cluster the command starts brokers on this machine, and ends them. With --cluster it uses a
    running cluster: it creates a topic, and injects the faults that need no access to processes.

    Ends with 1 if the history is invalid, and with 2 if a requested fault cannot be injected or had no
    effect.

    \b
    Examples:
      raftlog chaos run --minutes 2
      raftlog chaos run --brokers 5 --seed 7 --faults kill,pause,one-way
      raftlog chaos run --scenario leader-is-cut-off.toml
    """
    from chaos.harness.scenario import drawn
    from chaos.harness.stage import Stage

    stage = Stage(cluster.split(",") if cluster else (), toxiproxy)
    if scenario is not None:
        _carry_out(stage, _read(stage, scenario), report)
    names = [name.strip() for name in faults.split(",")] if faults else []
    with _faults_refused():
        chosen = stage.choose_faults(names, brokers)
    chosen_seed = secrets.randbits(32) if seed is None else seed
    _carry_out(stage, drawn(chosen_seed, brokers=brokers, seconds=60 * minutes, faults=chosen), report)


def replay(recorded: RecordArgument, report: ReportOption = None) -> None:
    """Inject the faults of an earlier run again, at their times and with their seeds.

    \b
    Example:
      raftlog chaos replay chaos-7/report.json
    """
    from chaos.harness.stage import Stage

    stage = Stage()
    _carry_out(stage, _read(stage, recorded), report)


def faults() -> None:
    """List the faults, and whether this machine can inject them."""
    from chaos.harness.faults import FAULTS
    from chaos.harness.stage import Stage

    found = {ability.name: ability for ability in Stage().abilities()}
    rows = [
        {
            "fault": fault.name,
            "here": "yes" if all(found[need].is_there for need in fault.needs) else "no",
            "needs": ", ".join(fault.needs) or "-",
            "summary": fault.summary,
        }
        for fault in FAULTS.values()
    ]
    show(rows, ("fault", "here", "needs", "summary"))
    for ability in found.values():
        click.echo(f"{ability.name}: {ability.detail}", err=True)


class System(enum.StrEnum):
    """A system that loses acknowledged writes."""

    LYING_FSYNC = "lying-fsync"
    PYSYNCOBJ = "pysyncobj"


def control(system: Annotated[System, Argument(help="The system to run.")], seed: SeedOption = None) -> None:
    """Check the checkers: run a system that loses acknowledged writes.

    Ends with 1 if the checkers find no lost write. lying-fsync: brokers of raftlog whose disks report syncs
    that did not happen, and lose power; needs root. pysyncobj: a log built on the library of that name, whose
    leaders are killed while links are slow.

    \b
    Examples:
      raftlog chaos control pysyncobj
      sudo raftlog chaos control lying-fsync --seed 7
    """
    chosen_seed = secrets.randbits(32) if seed is None else seed
    with tempfile.TemporaryDirectory(prefix="raftlog-control-") as directory:
        found = _run_control(system, chosen_seed, Path(directory))
    shown = {
        "verdict": "guilty" if found.is_guilty else "not guilty",
        "acknowledged": found.acknowledged,
        "lost": found.lost,
        "seed": chosen_seed,
    }
    printed(f"{_pairs(shown)}: {found.detail}", **shown, detail=found.detail)
    if not found.is_guilty:
        raise click.exceptions.Exit(REFUSED)


def _pairs(shown: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in shown.items())


def _run_control(system: System, seed: int, directory: Path) -> ControlResult:
    """Run the control. If this machine lacks a requirement, that is wrong usage."""
    if system is System.LYING_FSYNC:
        from chaos.harness.controls import lying_fsync

        if (reason := lying_fsync.missing()) is not None:
            wrong_usage(reason)
        return lying_fsync.run(seed, directory)
    if find_spec("pysyncobj") is None:
        wrong_usage(f"a library is missing: {install_command('chaos')}")
    from chaos.harness.controls import pysyncobj_log

    try:
        return pysyncobj_log.run(seed, directory)
    except pysyncobj_log.ControlFailed as error:
        return ControlResult(
            name=system.value,
            is_guilty=False,
            lost=0,
            acknowledged=0,
            detail=f"the system could not be run: {error}",
        )


@contextmanager
def _faults_refused() -> Iterator[None]:
    """Report a scenario or a fault that cannot be injected as wrong usage."""
    from chaos.harness.scenario import InvalidScenario
    from chaos.harness.stage import CannotInject

    try:
        yield
    except (InvalidScenario, CannotInject) as error:
        wrong_usage(str(error))


def _read(stage: Stage, path: Path) -> Scenario:
    from chaos.harness.scenario import read_scenario

    with _faults_refused():
        scenario = read_scenario(path)
        stage.choose_faults([fault.fault for fault in scenario.faults], scenario.brokers)
        return scenario


def _carry_out(stage: Stage, scenario: Scenario, report: Path | None) -> NoReturn:
    """Run the scenario, write the report, and exit with the status of the verdict."""
    from chaos.harness import namespaces
    from chaos.harness.report import LiveSummary, write_report
    from chaos.harness.run import Run
    from chaos.stacks import show_on_signal

    show_on_signal()
    if not stage.urls and namespaces.missing() is None and not namespaces.is_hub():
        namespaces.enter_hub()
    directory = report or Path(f"chaos-{scenario.seed}")
    if directory.exists() and any(directory.iterdir()):
        wrong_usage(f"--report: {directory} is not empty; choose another directory")
    directory.mkdir(parents=True, exist_ok=True)
    for ability in stage.abilities():
        click.echo(f"{ability.name}: {ability.detail}", err=True)
    with LiveSummary(scenario) as summary:
        finished = Run(stage, scenario, shlex.join(sys.argv), summary.update)
        record = finished.execute(directory)
    path = write_report(directory, record, finished.history)
    if record.verdict == "valid" and not record.problems:
        for data in directory.glob("broker-*/data"):
            shutil.rmtree(data)  # otherwise the data is kept as evidence
    for line in (*(f"left out: {reason}" for reason in record.left_out), *record.problems):
        click.echo(line, err=True)
    counts = record.counts
    shown = {
        "verdict": record.verdict,
        "acknowledged": counts.acknowledged,
        "lost": counts.lost,
        "duplicated": counts.duplicated,
        "transactions": counts.transactions_committed,
        "anomalies": len(record.anomalies),
        "faults": len(record.injected),
        "kinds": len({fault.fault for fault in record.injected}),
        "report": str(path),
    }
    printed(_pairs(shown), **shown)
    raise click.exceptions.Exit(
        REFUSED if record.verdict == "invalid" else WRONG_USAGE if record.problems else 0
    )
