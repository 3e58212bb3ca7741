"""Shows a summary on the terminal during a run; if there is no terminal, prints a line every 10 s."""

from __future__ import annotations

from collections import Counter, deque
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from api.svg import moment
from chaos.harness.report.numbers import several
from chaos.harness.scenario import Scenario

if TYPE_CHECKING:
    from chaos.harness.run import Progress

LINE_EVERY_S: Final = 10.0
_RATE_OVER_S: Final = 2.0


class LiveSummary:
    """Shows the progress of one run between ``__enter__`` and ``__exit__``."""

    def __init__(self, scenario: Scenario, console: Console | None = None) -> None:
        self._scenario = scenario
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._recent: deque[tuple[float, int]] = deque()  # (time, acknowledged)
        self._next_line_s = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        """Show the current state of the run. May be called from another thread than the thread of the
        block.
        """
        rate = self._rate(progress)
        if self._console.is_terminal:
            self._live.update(_drawn(progress, rate, self._scenario), refresh=True)
        elif progress.elapsed_s >= self._next_line_s:
            self._next_line_s = progress.elapsed_s + LINE_EVERY_S
            self._console.print(_line(progress, rate), markup=False, highlight=False, soft_wrap=True)

    def _rate(self, progress: Progress) -> float:
        """Return the number of acknowledged values per second, over the last two seconds."""
        self._recent.append((progress.elapsed_s, progress.acknowledged))
        while len(self._recent) > 2 and self._recent[1][0] <= progress.elapsed_s - _RATE_OVER_S:
            self._recent.popleft()
        begun_s, before = self._recent[0]
        passed_s = progress.elapsed_s - begun_s
        return (progress.acknowledged - before) / passed_s if passed_s else 0.0


def _line(progress: Progress, rate: float) -> str:
    return (
        f"{moment(progress.elapsed_s)} {progress.phase}: "
        f"{progress.acknowledged:,} acknowledged ({rate:,.0f}/s), "
        f"{several(progress.transactions, 'transaction')}, "
        f"{several(progress.injected, 'fault')} injected, now {', '.join(progress.active) or 'none'}, "
        f"{_leaderless(progress)} without a leader"
    )


def _leaderless(progress: Progress) -> str:
    return several(sum(leader is None for leader in progress.leaders.values()), "partition")


def _drawn(progress: Progress, rate: float, scenario: Scenario) -> Group:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    leads = Counter(leader for leader in progress.leaders.values() if leader is not None)
    rows = [
        ("time", f"{moment(progress.elapsed_s)}, {progress.phase}; {moment(scenario.seconds)} with faults"),
        ("acknowledged", f"{progress.acknowledged:,} values, {rate:,.0f}/s"),
        ("transactions", f"{progress.transactions:,} committed"),
        ("faults", f"{progress.injected:,} of {len(scenario.faults):,} injected"),
        ("now", ", ".join(progress.active) or "none"),
        ("leaders", ", ".join(f"broker {broker}: {number}" for broker, number in sorted(leads.items()))),
        ("no leader", _leaderless(progress)),
    ]
    for name, words in rows:
        table.add_row(name, Text(words))
    bar = ProgressBar(total=max(1, len(scenario.faults)), completed=progress.injected, width=40)
    return Group(table, bar)
