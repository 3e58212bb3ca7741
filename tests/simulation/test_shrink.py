"""A seed that fails is cut down to the faults that matter."""

from __future__ import annotations

import pytest

from tests.helpers.planted_bugs import Edit, planted
from verification.simulator.levels import LOG, Seed
from verification.simulator.shrink import Shrinker

_ELECTION = "raftlog.core.election:"
LOOKS_AT_NO_LOG = (
    Edit(f"{_ELECTION}answer_vote", " or request.last < member.newest_durable", ""),
    Edit(f"{_ELECTION}answer_pre_vote", "request.last >= member.newest_durable", "True"),
)
KEEPS_MEMBERSHIPS = (
    Edit(
        "raftlog.storage.log_changes:LogChanges.cut", "self._members.truncate_suffix(first_removed)", "pass"
    ),
)
TRUSTS_THE_CACHE = (Edit("raftlog.storage.recovery:_Opening._make_durable", "file.sync()", "pass"),)
CASES = (
    pytest.param(LOOKS_AT_NO_LOG, "core:0", 4, id="core"),
    pytest.param(KEEPS_MEMBERSHIPS, "log:0", 0, id="log"),
    pytest.param(TRUSTS_THE_CACHE, "brokers:1", 4, marks=pytest.mark.slow, id="brokers"),
)


@pytest.mark.parametrize(("bug", "first", "most"), CASES)
def test_a_planted_bug_is_shown_by_a_few_faults(bug: tuple[Edit, ...], first: str, most: int) -> None:
    with planted(*bug):
        seed = Seed.named(first)
        while not (found := seed.run(stops_at_violation=True)).violations:
            seed = Seed(seed.level, seed.number + 1)
        shrunk = Shrinker(seed, found, limit_s=30.0).shrink()
        assert shrunk is not None
        assert len(shrunk.schedule) <= most
        assert most < len(found.happened) or seed.level == LOG  # whose odds are all that is cut down
        assert shrunk.odds != seed.odds()
        assert shrunk.result.violations[0].invariant == found.violations[0].invariant
        again = seed.run(shrunk.odds, schedule=shrunk.schedule, keeps_lines=True, stops_at_violation=True)
        assert (again.trace, again.violations) == (shrunk.result.trace, shrunk.result.violations)
    assert "VIOLATION" in shrunk.describe()


def test_a_run_that_breaks_nothing_is_not_shrunk() -> None:
    seed = Seed.named("core:0")
    with pytest.raises(ValueError, match="breaks no invariant"):
        Shrinker(seed, seed.run())
