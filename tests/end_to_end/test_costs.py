"""The cost of an act on real brokers, counted, against ``docs/performance-budget.md``."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest

from tests.helpers.costed_brokers import LARGE, CostedBrokers, costed_brokers
from tests.helpers.costs import Counts, MeteredProcess, TracedProcess, least_costs, round_costs
from tests.helpers.real_cluster import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

BUDGET = Path(__file__).parents[2] / "docs" / "performance-budget.md"
COUNTED = (
    "produce",
    "quorum produce",
    "JSON produce",
    "fetch",
    "group poll",
    "poll of 45 records",
    "offset commit",
)
NO_WORK = ("getpid", "epoll_pwait", "futex")  # turns and threads: counted as such, or not ours


def test_python_calls_are_within_their_budget(directory: Path) -> None:
    processes = {broker: MeteredProcess(directory, broker) for broker in (1, 2, 3)}
    meters = {broker: one.begin for broker, one in processes.items()}
    meters_of_files = {broker: one.begin_files for broker, one in processes.items()}
    with costed_brokers(directory, processes) as brokers:
        _check(brokers, "heartbeat round", "calls", round_costs(meters))
        for act in COUNTED:
            do_it = brokers.act(act)
            _check_least(brokers, act, {"calls": itemgetter("calls")}, partial(least_costs, meters, do_it))
            measure = partial(least_costs, meters_of_files, do_it)
            _check_least(brokers, act, {"files": itemgetter("files")}, measure)


def test_allocations_and_copies_are_within_their_budget(directory: Path) -> None:
    processes = {broker: MeteredProcess(directory, broker, is_memory_seen=True) for broker in (1, 2, 3)}
    meters = {broker: one.begin for broker, one in processes.items()}
    with costed_brokers(directory, processes, in_turns=False) as brokers:
        measure = partial(least_costs, meters, brokers.acts["produce"])
        _check_least(brokers, "produce", {"allocations": itemgetter("large")}, measure)
        measure = partial(least_costs, meters, brokers.acts["produce 256 KiB"])
        _check_least(brokers, "produce 256 KiB", {"copies": _copies}, measure)


@pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed; its package has its name"
)
def test_system_calls_and_loop_turns_are_within_their_budget(directory: Path) -> None:
    processes = {broker: TracedProcess(directory, broker) for broker in (1, 2, 3)}
    meters = {broker: one.begin for broker, one in processes.items()}
    with costed_brokers(directory, processes, in_turns=False) as brokers:
        for act in ("produce", "fetch"):
            kinds = {"turns": _turns, "system calls": _system_calls}
            _check_least(brokers, act, kinds, partial(least_costs, meters, brokers.acts[act]))


def _copies(counts: Counts) -> int:
    return counts["large_bytes"] // LARGE


def _turns(counts: Counts) -> int:
    return counts.get("epoll_pwait", 0)


def _system_calls(counts: Counts) -> int:
    return sum(count for name, count in counts.items() if name not in NO_WORK)


def _check_least(
    brokers: CostedBrokers,
    act: str,
    kinds: Mapping[str, Callable[[Counts], int]],
    measure: Callable[[], Mapping[int, Counts]],
) -> None:
    """The least costs of an act are within the budget. ``kinds`` has the limited sum of counts of each kind.

    A busy machine needs more attempts: what happens at the same time, such as a heartbeat, adds to a cost.
    The test gives up when no attempt lowers a cost for the time limit.
    """
    least: dict[tuple[str, int], int] = {}

    def are_within() -> bool:
        for broker, counts in measure().items():
            for kind, sum_of in kinds.items():
                cost = sum_of(counts)
                least[kind, broker] = min(cost, least.get((kind, broker), cost))
        limits = _budget()
        return all(
            cost <= limits.get((act, kind, brokers.role(broker)), -1)
            for (kind, broker), cost in least.items()
        )

    with suppress(AssertionError):  # the figures below say which cost is too high
        eventually(are_within, what=f"the costs of {act}", progress=least.copy)
    for kind in kinds:
        _check(brokers, act, kind, {broker: cost for (named, broker), cost in least.items() if named == kind})


def _check(brokers: CostedBrokers, act: str, what: str, costs: Mapping[int, int]) -> None:
    """Neither the leader nor a follower costs more than the budget says."""
    for broker, cost in costs.items():
        role = brokers.role(broker)
        budget = _budget().get((act, what, role))
        print(f"{act}, {what}, {role}: {cost}, budget {budget}")
        assert budget is not None, (act, what, role, cost)
        assert cost <= budget, (act, what, role)


def _budget() -> Mapping[tuple[str, str, str], int]:
    """The limits of the page's table, by act, kind of cost, and role."""
    row = re.compile(r"^\| ([a-zA-Z0-9 ]+) \| ([a-z ]+) \| (\d+) \| (\d+) \|", re.MULTILINE)
    return {
        (act, what, role): int(limit)
        for act, what, *limits in row.findall(BUDGET.read_text())
        for role, limit in zip(("leader", "follower"), limits, strict=True)
    }
