"""Names the seeds of all levels. ``core:17`` runs bare cores, ``log:17`` a log, ``groups:17`` the coordinator
of a consumer group alone; ``brokers:17`` or ``17`` runs whole brokers, ``brokers-queue:17`` brokers with a
scenario.

The names of scenarios are in ``scenarios.ALL``. ``brokers-busy:17`` runs brokers whose CPUs are busy, with at
most one scenario. ``brokers-long:17`` runs brokers with quiet phases of minutes; only long runs and
explorations use this level.

Decides: the shares of the levels among a number of seeds, so that 5,000 take less than five minutes on two
cores. Of thirty seeds one runs whole brokers, which find errors between the parts and take longest. Ten run a
log alone, with many crashes, and one runs a consumer group. The others run bare cores with membership
changes. Of sixteen runs of whole brokers two have no scenario, and one has busy CPUs. Runs of HTTP come in
addition, and replace runs of bare cores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from verification.simulator import scenarios
from verification.simulator.group_level.life import run_group
from verification.simulator.group_level.odds import GroupOdds
from verification.simulator.odds import Odds
from verification.simulator.raft_level.core_run import run_core
from verification.simulator.raft_level.odds import CoreOdds
from verification.simulator.result import Result
from verification.simulator.schedule import Schedule
from verification.simulator.share import Share
from verification.simulator.simulation import run
from verification.simulator.storage_level.log_run import run_log
from verification.simulator.storage_level.odds import LogOdds

CORE, LOG, GROUPS = "core", "log", "groups"
BROKERS, BROKERS_LONG, BROKERS_BUSY = "brokers", "brokers-long", "brokers-busy"

BUSY_SHARE: Final = Share(5, 0.8, (150,))
"""The share of the level ``brokers-busy`` among the seeds; ``scenarios.ALL`` has the shares of scenarios."""


def _mix() -> tuple[str, ...]:
    """Return the mix of levels: one seed of thirty runs whole brokers, mostly with a scenario."""
    mix = [BROKERS, CORE, LOG, GROUPS, CORE, LOG, *(CORE, CORE, LOG) * 8] * 16
    for level, share in ((BROKERS_BUSY, BUSY_SHARE), *((each.level, each.share) for each in scenarios.ALL)):
        for place in share.places:
            mix[place] = level
    return tuple(mix)


MIX: Final = _mix()
"""The level of each of 480 consecutive seeds; the next 480 have equal levels."""

AnyOdds = Odds | CoreOdds | LogOdds | GroupOdds


def _drawn_busy(rng: random.Random) -> Odds:
    """Draw the parameters as another level does, for machines whose CPUs are also used by other programs."""
    drawn = (Odds.drawn, *(each.scenario.drawn for each in scenarios.ALL if each.runs_busy))
    return replace(rng.choice(drawn)(rng), turn_s=rng.choice((0.0003, 0.001, 0.002)))


_DRAWN: dict[str, Callable[[random.Random], AnyOdds]] = {
    BROKERS: Odds.drawn,
    BROKERS_LONG: Odds.drawn_long,
    BROKERS_BUSY: _drawn_busy,
    **{each.level: each.drawn for each in scenarios.ALL},
    CORE: CoreOdds.drawn,
    LOG: LogOdds.drawn,
    GROUPS: GroupOdds.drawn,
}


@dataclass(frozen=True, slots=True)
class Seed:
    """A level and a number, such as ``core:17``."""

    level: str
    number: int

    def __str__(self) -> str:
        return f"{self.level}:{self.number}"

    @classmethod
    def named(cls, name: str) -> Seed:
        """Parse the name of a seed. Raises ``ValueError``, whose text lists valid names."""
        level, _, number = name.rpartition(":")
        if level not in ("", *_DRAWN) or not number.isdigit():
            levels = [level for level in _DRAWN if level not in (BROKERS, BROKERS_LONG)]
            known = f"{', '.join(f'{each}:number' for each in levels)} or {BROKERS}:number"
            raise ValueError(f"{name!r} is not a seed: give a number, {known}")
        return cls(level or BROKERS, int(number))

    def odds(self) -> AnyOdds:
        """The random parameters that this seed determines."""
        return _DRAWN[self.level](random.Random(f"{self.number} odds"))

    def run(
        self,
        odds: AnyOdds | None = None,
        *,
        schedule: Schedule | None = None,
        keeps_lines: bool = False,
        stops_at_violation: bool = False,
    ) -> Result:
        """Run the seed, with its own or with other random parameters. Only runs of whole brokers can continue
        after a violation.

        The faults of a log and of a group follow from their odds: they take no ``schedule``.
        """
        if self.level == CORE:
            assert odds is None or isinstance(odds, CoreOdds)
            return run_core(self.number, odds, schedule=schedule, keeps_lines=keeps_lines)
        if self.level == LOG:
            assert odds is None or isinstance(odds, LogOdds)
            return run_log(self.number, odds, keeps_lines=keeps_lines)
        if self.level == GROUPS:
            assert odds is None or isinstance(odds, GroupOdds)
            return run_group(self.number, odds, keeps_lines=keeps_lines)
        odds = odds or self.odds()
        assert isinstance(odds, Odds)
        result = run(
            self.number,
            odds,
            schedule=schedule,
            keeps_lines=keeps_lines,
            stops_at_violation=stops_at_violation,
        )
        return replace(result, name=str(self))


def seeds(first: int, count: int) -> Iterator[Seed]:
    """Yield seeds of all levels, ``count`` in total. The seeds of each level have consecutive numbers."""
    for number in range(first, first + count):
        rounds, place = divmod(number, len(MIX))
        level = MIX[place]
        yield Seed(level, rounds * MIX.count(level) + MIX[:place].count(level))
