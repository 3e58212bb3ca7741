"""The random parameters of one run's transactions."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, Self

from groups.records import TOPIC as OFFSETS
from transactions.batches import KEY_END
from transactions.records import TOPIC
from verification.simulator.odds import Odds
from verification.simulator.scenarios.transactions.wide_odds import WideOdds
from verification.simulator.side_draws import beside

AFTER_A_DECISION: Final = "after a decision"
BEFORE_A_MARKER: Final = "before a marker"
BETWEEN_MARKERS: Final = "between markers"
AIMED: Final = (AFTER_A_DECISION, BEFORE_A_MARKER, BETWEEN_MARKERS)
"""Faults: the coordinator of a transaction, or the leader of one of its partitions, crashes or is deposed."""

LEDGER: Final = "ledger"
JOURNAL: Final = "journal"
PASSING: Final = "passing"
PASSING_PARTITIONS: Final = 2
"""The number of partitions of a topic whose partitions are removed and added again in some runs."""
QUERY_KEY: Final = "query"  # of the sink that is written in runs
FIRST, SECOND = "first", "second"  # the queries that write it
TASKS: Final = 2  # of a batch
ATTEMPTS: Final = 2  # of a task


def query_id(query: str, task: int, attempt: int) -> str:
    """Return the transactional id of one attempt of a task of a query."""
    return f"{QUERY_KEY}{KEY_END}{query}.{task}.{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionOdds:
    """Parameters of transactions: probabilities are per transaction or request; times are means, unless they
    are limits.
    """

    ledger_partitions: int  # of one topic; the other has one
    coordinators: int  # partitions of ``__transactions``
    is_compacted: bool  # ``__transactions``, in the run
    ids: int
    incarnations: int  # of each id at the same time
    sink_tasks: int
    batches_max: int  # of a transaction
    think_s: float
    timeout_ms: int
    prepared_ms: int
    aborts: float
    late: float  # requests that arrive once more, later
    late_s: float
    old_ends: float  # before a batch: the end of an earlier transaction arrives once more
    forgets: float  # an incarnation opens its id again
    stalls: float  # a producer stops in the midst of a transaction
    unsequenced: float  # batches
    offsets: float  # a group commits an offset, in place of a batch
    operator_s: float  # between two aborts of an operator
    drivers: int  # of one query at the same time; without any no sink is written in runs
    removes_partitions: bool = False  # of one more topic, while transactions write to them
    has_one_shots: bool = False  # a client whose requests are transactions of their own
    wide: WideOdds | None = None

    @classmethod
    def calm(cls) -> Self:
        """Return odds without transactional producers, sinks, queries and faults."""
        return cls(
            ledger_partitions=1,
            coordinators=1,
            is_compacted=False,
            ids=0,
            incarnations=0,
            sink_tasks=0,
            batches_max=1,
            think_s=0.0,
            timeout_ms=500,
            prepared_ms=500,
            aborts=0.0,
            late=0.0,
            late_s=0.0,
            old_ends=0.0,
            forgets=0.0,
            stalls=0.0,
            unsequenced=0.0,
            offsets=0.0,
            operator_s=0.0,
            drivers=0,
        )

    @property
    def topics(self) -> tuple[tuple[str, int], ...]:
        """The topics of the run, each with its number of partitions."""
        passing = ((PASSING, PASSING_PARTITIONS),) if self.removes_partitions else ()
        return (
            (TOPIC, self.coordinators),
            (OFFSETS, 1),
            (LEDGER, self.ledger_partitions),
            (JOURNAL, 1),
            *passing,
        )

    @property
    def query_ids(self) -> list[str]:
        """The transactional ids that queries may open."""
        each = product((FIRST, SECOND), range(TASKS), range(ATTEMPTS)) if self.drivers else ()
        return [query_id(*one) for one in each]

    def with_more(self, rng: random.Random) -> Self:
        """Return a copy in which some runs also remove partitions, or have one-shot transactions."""
        return replace(self, removes_partitions=rng.random() < 0.4, has_one_shots=rng.random() < 0.4)

    def without_producers(self) -> Self:
        """Return a copy without records in transactions, for runs in which unused ids expire."""
        return replace(
            self, ids=0, sink_tasks=0, drivers=0, removes_partitions=False, has_one_shots=False, offsets=0.0
        )

    def with_wide(self, wide: WideOdds) -> Self:
        """Return a copy with a sink of wide transactions in place of other sinks. Its batches take many
        requests.
        """
        return replace(
            self,
            wide=wide,
            ids=1,
            incarnations=1,
            sink_tasks=0,
            drivers=0,
            removes_partitions=False,
            timeout_ms=4_000,
            prepared_ms=4_000,
        )

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw the parameters for one seed."""
        return cls(
            ledger_partitions=rng.choice((1, 1, 2)),
            coordinators=rng.choice((1, 1, 2)),
            is_compacted=rng.random() < 0.4,
            ids=rng.choice((1, 2, 4)),
            incarnations=rng.choice((1, 1, 1, 2)),
            sink_tasks=rng.choice((0, 0, 2)),
            batches_max=rng.choice((2, 4, 6)),
            think_s=rng.choice((0.01, 0.03, 0.1)),
            timeout_ms=rng.choice((500, 1_500, 4_000)),
            prepared_ms=rng.choice((1_500, 4_000)),
            aborts=rng.choice((0.1, 0.3, 0.5)),
            late=rng.choice((0.0, 0.1, 0.4)),
            late_s=rng.choice((0.1, 0.5, 2.0)),
            old_ends=rng.choice((0.0, 0.1, 0.3)),
            forgets=rng.choice((0.0, 0.1, 0.3)),
            stalls=rng.choice((0.0, 0.02, 0.1)),
            unsequenced=rng.choice((0.0, 0.0, 0.3)),
            offsets=rng.choice((0.0, 0.2, 0.5)),
            operator_s=rng.choice((2.0, 5.0, 30.0)),
            drivers=rng.choice((0, 0, 1, 2)),
        )


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, TransactionOdds]:
    """Draw a run without administrators, with transactions in place of most clients.

    A transaction takes many steps, so faults are rare enough that some steps happen between two faults.
    """
    cluster = cluster.with_few_clients(rng)
    at_worst = {kind: rng.choice((0.0, 0.05, 0.2)) for kind in AIMED}
    transactions = TransactionOdds.drawn(rng)
    transactions = transactions.with_more(beside(rng))
    settings = replace(
        cluster.settings, offsets_partitions=1, transactions_partitions=transactions.coordinators
    )
    cluster = replace(
        cluster,
        aimed={**{kind: min(cluster.aimed[kind], 0.02) for kind in cluster.aimed}, **at_worst},
        pause_s=max(cluster.pause_s, rng.choice((0.3, 0.8, 1.5))),
        faults_s=max(cluster.faults_s, 8.0),
        partitions=1,
        settings=settings,
        offsets_are_compacted=rng.random() < 0.3,
    )
    return cluster, transactions
