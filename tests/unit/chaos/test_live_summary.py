"""The summary of a running chaos run, on a terminal and in a file."""

from __future__ import annotations

import io

from rich.console import Console

from chaos.harness.report import LiveSummary
from chaos.harness.run import Progress
from chaos.harness.scenario import PlannedFault, Scenario

SCENARIO = Scenario(seconds=60, faults=(PlannedFault(at_s=1, fault="kill", seconds=2),) * 4)


def progress(at_s: float) -> Progress:
    return Progress(at_s, "faults", int(100 * at_s), int(at_s), ["kill", "[red]"], 2, {0: 1, 1: None, 2: 1})


def summary(*, terminal: bool) -> tuple[io.StringIO, LiveSummary]:
    file = io.StringIO()
    return file, LiveSummary(SCENARIO, Console(file=file, force_terminal=terminal, width=100))


def test_without_a_terminal_there_is_a_line_every_ten_seconds() -> None:
    file, live = summary(terminal=False)
    with live:
        for tenth in range(250):
            live.update(progress(tenth / 10))
    rest = "2 faults injected, now kill, [red], 1 partition without a leader"
    assert file.getvalue().splitlines() == [
        f"0:00 faults: 0 acknowledged (0/s), 0 transactions, {rest}",
        f"0:10 faults: 1,000 acknowledged (100/s), 10 transactions, {rest}",
        f"0:20 faults: 2,000 acknowledged (100/s), 20 transactions, {rest}",
    ]


def test_a_terminal_shows_the_current_state() -> None:
    file, live = summary(terminal=True)
    with live:
        live.update(progress(30))
        live.update(progress(31))
    shown = file.getvalue()
    for words in (
        "3,100 values, 100/s",
        "31 committed",
        "2 of 4 injected",
        "kill, [red]",
        "broker 1: 2",
        "1 partition",
    ):
        assert words in shown
