"""A death after every disk operation: a slice of what ``verification.crash_points`` does, and its control."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.helpers.planted_bugs import Edit, planted
from verification.crash_points import run_all, run_point
from verification.crash_workload import KILL, POWER_LOSS, CrashPoint, Workload

STRIDE = 701
LAST_LINE = re.compile(
    r"operations=\d+ crashes=\d+ power_losses=\d+ recovered=\d+ failed=\d+ seconds=\d+\.\d"
)


@cache
def without_a_death() -> Workload:
    """The workload, run once for all tests of a process."""
    return run_point(None)


def test_a_death_after_a_disk_operation_is_survived() -> None:
    # requirement: M3
    outcomes = run_all(STRIDE)
    assert outcomes.operations > STRIDE
    assert outcomes.failures == ()
    assert outcomes.crashes == outcomes.power_losses == (outcomes.operations - 1) // STRIDE + 1
    assert outcomes.recovered == outcomes.crashes + outcomes.power_losses
    assert LAST_LINE.fullmatch(outcomes.last_line())


@pytest.mark.parametrize("manner", [KILL, POWER_LOSS])
def test_a_death_while_a_replica_is_removed_is_survived(manner: str) -> None:
    removed_at = dict(without_a_death().steps)["leave"]
    operation = removed_at - (20 if manner == KILL else 10)
    assert run_point(CrashPoint(operation, manner)).violations == []


def test_the_workload_rolls_cuts_closes_deletes_and_moves() -> None:
    workload = without_a_death()
    disk = workload.counted.disk
    paths = [path for path in disk.paths() if "/trash/" not in path]
    files = [path.rpartition("/")[2] for path in paths]
    assert sum(name.endswith(".log") for name in files) > 10
    fading = sorted(path for path in paths if "/fading" in path and path.endswith(".log"))
    assert not fading[0].endswith("00000000000000000000.log")
    assert not any("/passing" in path for path in paths)
    assert any("/passing" in path for path in disk.paths())
    assert "snapshot" in files
    assert sum("/moving" in path for path in paths) > 3
    assert sum("-moved-away/moving" in path for path in disk.paths()) > 3


_DECISIONS = "transactions.decisions:Decisions._take_over"
SENDS_NO_MARKERS = Edit(_DECISIONS, "if transaction.state in ENDING:", "if False:")
HAS_NO_DEADLINES = Edit(_DECISIONS, "self._schedule(name, transaction, self._due.resume)", "pass")
SYNCS_NO_VOTES = Edit(
    "raftlog.storage.durable_state:DurableState.save", "self._write(sync=True)", "self._write(sync=False)"
)
_LOG_SYNC = "raftlog.storage.log_sync:LogSync."
SYNCS_NO_NAMES = (
    Edit(f"{_LOG_SYNC}run", "names_changed:", "names_changed and False:"),
    Edit(f"{_LOG_SYNC}_note_success", "if valid:", "if False:"),
)


# The operations of a transaction at which the search begins: the bugs are seen soon after them.
@pytest.mark.parametrize(
    ("bug", "first"),
    [pytest.param(SENDS_NO_MARKERS, 24, id="markers"), pytest.param(HAS_NO_DEADLINES, 12, id="deadlines")],
)
def test_a_bug_in_transactions_is_seen(bug: Edit, first: int) -> None:
    steps = dict(without_a_death().steps)
    with planted(bug):
        points = range(steps["transact"] + first, steps["coordinate"], 4)
        assert any(run_point(CrashPoint(at, KILL)).violations for at in points)


@pytest.mark.parametrize("bug", [(SYNCS_NO_VOTES,), SYNCS_NO_NAMES], ids=["votes", "names"])
def test_a_bug_that_forgets_what_was_durable_is_seen(bug: tuple[Edit, ...]) -> None:
    with planted(*bug):
        assert any(run_point(CrashPoint(at, POWER_LOSS)).violations for at in range(160, 240, 5))
