"""All levels under one name: ``core:17`` runs bare cores, ``log:17`` a log, ``brokers:17`` or ``17`` brokers.

``brokers-long:17`` runs brokers with quiet phases of minutes, only in long runs and explorations. ``http:17``
runs brokers with the production clients and HTTP server, ``brokers-group:17`` brokers with the members of a
consumer group, ``brokers-compacted:17`` brokers with a compacted topic, ``brokers-transactions:17`` brokers
with transactions, ``brokers-delayed:17`` brokers with delayed messages, ``brokers-queue:17`` brokers with the
workers of a queue, ``brokers-followers:17`` brokers with readers of followers, ``brokers-busy:17`` brokers
whose CPUs are busy, ``brokers-healing:17`` brokers that die for good, ``brokers-balancing:17`` such brokers
that are balanced, ``brokers-deleting:17`` brokers with a client that deletes records, ``brokers-fewer:17``
brokers with partitions that are decommissioned, ``brokers-joining:17`` brokers that are joined by others,
``brokers-hosts:17`` brokers that are copied, moved and cut off from one another. ``groups:17`` runs the
coordinator of a consumer group alone.

Decides: the shares of the levels among a number of seeds, so that 5,000 take less than five minutes on two
cores. One of thirty runs whole brokers, which find errors between the parts and take longest; ten run a
log alone, which has most crashes; one a consumer group; the others run bare cores, with membership changes.
Of sixteen runs of whole brokers one has a consumer group, one a queue, one a compacted topic, one delayed
messages, one readers of followers, one busy CPUs and two have transactions, in one records are deleted on
request, in one partitions are decommissioned, in one brokers die for good, in one they are balanced, too, in
one others join, and in one they are copied and moved; a seventeenth, in place of a bare core, has the HTTP
server and the clients, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from chaos.simulator.group_level.life import run_group
from chaos.simulator.group_level.odds import GroupOdds
from chaos.simulator.odds import Odds
from chaos.simulator.raft_level.core_run import run_core
from chaos.simulator.raft_level.odds import CoreOdds
from chaos.simulator.result import Result
from chaos.simulator.scenarios import (
    balancing,
    compaction,
    delays,
    deletion,
    fewer_partitions,
    followers,
    groups,
    healing,
    hosts,
    http,
    joining,
    queues,
    transactions,
)
from chaos.simulator.schedule import Schedule
from chaos.simulator.simulation import run
from chaos.simulator.storage_level.log_run import run_log
from chaos.simulator.storage_level.odds import LogOdds

CORE, LOG, BROKERS, BROKERS_LONG, HTTP = "core", "log", "brokers", "brokers-long", "http"
GROUPS = "groups"
BROKERS_GROUP, BROKERS_COMPACTED = "brokers-group", "brokers-compacted"
BROKERS_TRANSACTIONS, BROKERS_HEALING = "brokers-transactions", "brokers-healing"
BROKERS_DELETING, BROKERS_JOINING = "brokers-deleting", "brokers-joining"
BROKERS_DELAYED, BROKERS_FOLLOWERS = "brokers-delayed", "brokers-followers"
BROKERS_BALANCING, BROKERS_FEWER = "brokers-balancing", "brokers-fewer"
BROKERS_QUEUE, BROKERS_BUSY = "brokers-queue", "brokers-busy"
BROKERS_HOSTS = "brokers-hosts"
THIRTY = (BROKERS, CORE, LOG, GROUPS, CORE, LOG, *(CORE, CORE, LOG) * 8)
MIX = (
    *THIRTY,
    *(BROKERS_FEWER, *THIRTY[1:]),
    *(BROKERS_FOLLOWERS, *THIRTY[1:]),
    *(BROKERS_GROUP, *THIRTY[1:]),
    *(BROKERS_QUEUE, *THIRTY[1:]),
    *(BROKERS_BUSY, *THIRTY[1:]),
    *(BROKERS_TRANSACTIONS, *THIRTY[1:]),
    *(BROKERS_JOINING, *THIRTY[1:]),
    *(BROKERS_DELAYED, *THIRTY[1:]),
    *(BROKERS_COMPACTED, *THIRTY[1:]),
    *(BROKERS_DELETING, *THIRTY[1:]),
    *(BROKERS_TRANSACTIONS, *THIRTY[1:]),
    *(BROKERS_HEALING, *THIRTY[1:]),
    *(BROKERS_BALANCING, *THIRTY[1:]),
    *(BROKERS, HTTP, *THIRTY[2:]),
    *(BROKERS_HOSTS, *THIRTY[1:]),
)
"""The levels of 480 consecutive seeds."""

AnyOdds = Odds | CoreOdds | LogOdds | GroupOdds


def _drawn_busy(rng: random.Random) -> Odds:
    """Like a run of another kind, on machines whose CPUs other programs use, too."""
    kinds: tuple[Callable[[random.Random], Odds], ...] = (
        *(Odds.drawn, groups.SCENARIO.drawn, compaction.SCENARIO.drawn, transactions.SCENARIO.drawn),
        *(delays.SCENARIO.drawn, followers.SCENARIO.drawn, queues.SCENARIO.drawn, deletion.SCENARIO.drawn),
        *(fewer_partitions.SCENARIO.drawn, http.SCENARIO.drawn),
    )
    return replace(rng.choice(kinds)(rng), turn_s=rng.choice((0.0003, 0.001, 0.002)))


_DRAWN: dict[str, Callable[[random.Random], AnyOdds]] = {
    BROKERS: Odds.drawn,
    BROKERS_LONG: Odds.drawn_long,
    BROKERS_GROUP: groups.drawn,
    BROKERS_COMPACTED: compaction.SCENARIO.drawn,
    BROKERS_JOINING: joining.SCENARIO.drawn,
    BROKERS_TRANSACTIONS: transactions.drawn,
    BROKERS_HEALING: healing.SCENARIO.drawn,
    BROKERS_BALANCING: balancing.SCENARIO.drawn,
    BROKERS_DELETING: deletion.SCENARIO.drawn,
    BROKERS_DELAYED: delays.SCENARIO.drawn,
    BROKERS_FOLLOWERS: followers.SCENARIO.drawn,
    BROKERS_FEWER: fewer_partitions.SCENARIO.drawn,
    BROKERS_QUEUE: queues.SCENARIO.drawn,
    BROKERS_BUSY: _drawn_busy,
    BROKERS_HOSTS: hosts.SCENARIO.drawn,
    HTTP: http.SCENARIO.drawn,
    CORE: CoreOdds.drawn,
    LOG: LogOdds.drawn,
    GROUPS: GroupOdds.drawn,
}


@dataclass(frozen=True, slots=True)
class Seed:
    """A level and a number."""

    level: str
    number: int

    def __str__(self) -> str:
        return f"{self.level}:{self.number}"

    @classmethod
    def named(cls, name: str) -> Seed:
        """Raises ``ValueError`` with the remedy."""
        level, _, number = name.rpartition(":")
        if level not in ("", *_DRAWN) or not number.isdigit():
            levels = [level for level in _DRAWN if level not in (BROKERS, BROKERS_LONG)]
            known = f"{', '.join(f'{each}:number' for each in levels)} or {BROKERS}:number"
            raise ValueError(f"{name!r} is not a seed: give a number, {known}")
        return cls(level or BROKERS, int(number))

    def odds(self) -> AnyOdds:
        """The random parameters of this seed."""
        return _DRAWN[self.level](random.Random(f"{self.number} odds"))

    def run(
        self,
        odds: AnyOdds | None = None,
        *,
        schedule: Schedule | None = None,
        keeps_lines: bool = False,
        stops_at_violation: bool = False,
    ) -> Result:
        """Run it, optionally with other odds; only whole brokers can continue after a violation.

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
    """A number of seeds of all levels; each level's numbers are consecutive."""
    for number in range(first, first + count):
        rounds, place = divmod(number, len(MIX))
        level = MIX[place]
        yield Seed(level, rounds * MIX.count(level) + MIX[:place].count(level))
