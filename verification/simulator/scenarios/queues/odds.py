"""The random parameters of one run's queue."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from raftlog.records.failures import dead_letter_topic
from raftlog.records.tags import TagSelection
from verification.simulator.odds import Odds
from verification.simulator.side_draws import beside

AFTER_A_LEASE: Final = "after a lease"
AFTER_A_LETTER: Final = "after a dead letter"
AIMED: Final = (AFTER_A_LEASE, AFTER_A_LETTER)
"""Faults: the coordinator of a queue crashes or is deposed, before a worker has its answer or before a job is
closed.
"""

AFTER_A_REDRIVE: Final = "after a redrive"
"""Fault: the coordinator crashes or is deposed when a dead letter has become a job again, before the redrive
is answered.
"""

MAIL: Final = "mail"
CREW: Final = "crew"
LETTERS: Final = dead_letter_topic(MAIL, CREW)
TAGS: Final = ("a", "b", "c")
SELECTING_ODDS: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOdds:
    """Parameters of a queue: probabilities are per job or request; times are in milliseconds, or means in
    seconds.
    """

    partitions: int  # of the topic
    is_ordered: bool  # by key
    keys: int
    workers: int
    count_max: int  # of one receive
    lease_ms: int
    deliveries_max: int
    wait_ms: int
    work_s: float  # between a receive and its acknowledgement
    produce_s: float  # between two records
    forgets: float  # jobs that are never answered
    nacks: float
    nack_ms: int
    extends: float
    gives_up: float
    late: float  # requests that arrive once more, later
    late_s: float
    selection: TagSelection | None = None  # of the jobs; without one, records have no tags
    redrive_s: float = 0.0  # between two redrives of dead letters; 0: never

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw the parameters for one seed."""
        return cls(
            partitions=rng.choice((1, 1, 2)),
            is_ordered=rng.random() < 0.4,
            keys=rng.choice((1, 3, 10)),
            workers=rng.choice((1, 2, 4)),
            count_max=rng.choice((1, 3, 8)),
            lease_ms=rng.choice((300, 1_000, 3_000)),
            deliveries_max=rng.choice((1, 2, 5, 20)),
            wait_ms=rng.choice((0, 100, 500)),
            work_s=rng.choice((0.01, 0.1, 0.5)),
            produce_s=rng.choice((0.05, 0.1, 0.3)),
            forgets=rng.choice((0.0, 0.1, 0.3)),
            nacks=rng.choice((0.0, 0.1, 0.3)),
            nack_ms=rng.choice((0, 100, 1_000)),
            extends=rng.choice((0.0, 0.2)),
            gives_up=rng.choice((0.0, 0.05)),
            late=rng.choice((0.0, 0.1, 0.4)),
            late_s=rng.choice((0.1, 0.5, 2.0)),
            selection=_selection(rng),
        )


def _selection(rng: random.Random) -> TagSelection | None:
    """Draw the queue's selection of tags from a copy of the generator, so that later draws do not depend on
    it.
    """
    copy = random.Random()
    copy.setstate(rng.getstate())
    lists = copy.choice(((("a", "b"), (), ()), ((), ("a",), ("c",)), (("a", "c"), (), ("b",))))
    return TagSelection.of(*lists) if copy.random() > 1 - SELECTING_ODDS else None


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, QueueOdds]:
    """Draw a run without administrators, with workers of a queue in place of most other clients."""
    cluster = cluster.with_few_clients(rng)
    at_worst = {kind: rng.choice((0.0, 0.02, 0.1)) for kind in AIMED}
    queue = QueueOdds.drawn(rng)
    cluster = replace(
        cluster,
        aimed={**{kind: min(cluster.aimed[kind], 0.02) for kind in cluster.aimed}, **at_worst},
        pause_s=max(cluster.pause_s, rng.choice((0.3, 0.8, 1.5))),
        faults_s=max(cluster.faults_s, 8.0),
        partitions=1,
        settings=replace(cluster.settings, offsets_partitions=1),
        offsets_are_compacted=rng.random() < 0.4,
    )
    return _with_redrives(cluster, queue, beside(rng))


def _with_redrives(cluster: Odds, queue: QueueOdds, rng: random.Random) -> tuple[Odds, QueueOdds]:
    """Return the run with redrives in half of the cases: an operator redrives dead letters, mostly of queues
    that keep the order of keys.
    """
    redrive_s = rng.choice((0.0, 0.0, 0.2, 1.0))
    if not redrive_s:
        return cluster, queue
    is_ordered = queue.is_ordered or rng.random() < 0.5
    queue = replace(
        queue,
        redrive_s=redrive_s,
        is_ordered=is_ordered,
        keys=min(queue.keys, 3),
        gives_up=rng.choice((0.1, 0.3)),  # jobs, so that there are dead letters
    )
    aimed = {**cluster.aimed, AFTER_A_REDRIVE: rng.choice((0.0, 0.1, 0.5))}
    return replace(cluster, aimed=aimed), queue
