"""Finds the levels and kinds of faults that no run has reached.

The kinds are read from the simulator's own tables of faults, by world, not from a list of names. Frames near
the size limit, and requests above it, count as kinds, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from verification.simulator import scenarios
from verification.simulator.group_level import life
from verification.simulator.levels import BROKERS, CORE, GROUPS, LOG, MIX, Seed
from verification.simulator.odds import CALM
from verification.simulator.raft_level import odds as core_odds
from verification.simulator.raft_level.faults import CoreFaults
from verification.simulator.raft_level.group import Group
from verification.simulator.result import Result
from verification.simulator.simulation import Simulation
from verification.simulator.storage_level import log_run


def world_of(level: str) -> str:
    """Return the world of a level. Bare cores, logs and coordinators alone are worlds; all other levels
    belong to the world of brokers.
    """
    return level if level in (CORE, LOG, GROUPS) else BROKERS


def fault_kinds() -> dict[str, frozenset[str]]:
    """The kinds of faults that the simulator injects, by world."""
    simulation = Simulation(0, CALM)
    simulation.loop.close()
    return {
        BROKERS: simulation.faults.kinds.union(*(each.scenario.kinds for each in scenarios.ALL)),
        CORE: CoreFaults(Group(3, 0, core_odds.CALM), 0, None).kinds,
        LOG: frozenset(log_run.FAULTS),
        GROUPS: frozenset((*life.FAULTS, life.ANSWER_LOST)),
    }


def unreached(results: Iterable[Result]) -> list[str]:
    """Return the levels of sweeps without a run, and the kinds of faults that no run of their world
    reached.
    """
    levels, happened = set[str](), set[tuple[str, str]]()
    for result in results:
        level = Seed.named(result.name).level
        levels.add(level)
        happened |= {(world_of(level), kind) for kind, count in result.faults.items() if count}
    missing = [f"level {level}" for level in dict.fromkeys(MIX) if level not in levels]
    for world, kinds in fault_kinds().items():
        missing += [f"{world}: {kind}" for kind in sorted(kinds) if (world, kind) not in happened]
    return missing
