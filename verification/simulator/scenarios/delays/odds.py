"""The random parameters of the delayed messages of one run."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, Self

from delayed.records import TOPIC
from verification.simulator.odds import Odds
from verification.simulator.side_draws import beside

AFTER_AN_ASSIGNMENT: Final = "after an assignment"
BEFORE_A_MOVE: Final = "before a move"
AFTER_A_MOVE: Final = "after a move"
AIMED: Final = (AFTER_AN_ASSIGNMENT, BEFORE_A_MOVE, AFTER_A_MOVE)
"""Faults: the coordinator of delayed messages, or the leader of a target partition, crashes or is deposed."""

REMINDERS: Final = "reminders"
FLEETING: Final = "fleeting"
SHRINKING: Final = "shrinking"
SHRINKING_PARTITIONS: Final = 2
"""The number of partitions of the topic from which some runs remove partitions.

In some runs the second target topic is deleted, or partitions of the third one are removed.
"""
LONG_SEGMENT: Final = (
    64 << 10
)  # where messages are long: a segment has several batches of them, as others have


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayOdds:
    """Parameters of delayed messages: probabilities are per request, times are means unless they
    are limits.
    """

    coordinators: int  # partitions of ``__delayed``
    targets: int  # partitions of the topic
    is_compacted: bool  # ``__delayed``, in the run
    clients: int
    messages_max: int  # of one request
    delay_ms_max: int
    think_s: float
    cancels: float
    reschedules: float
    late: float  # requests that arrive once more, later
    late_s: float
    deletes_topic: bool
    lowers_limit: bool  # max.message.bytes of the topic falls and rises while messages move
    removes_partitions: bool = False  # of a topic, and adds them again, while messages are for them

    @property
    def topics(self) -> tuple[tuple[str, int], ...]:
        """The topics of the run whose replicas may move, each with its number of partitions."""
        shrinking = ((SHRINKING, SHRINKING_PARTITIONS),) if self.removes_partitions else ()
        return (TOPIC, self.coordinators), (REMINDERS, self.targets), *shrinking

    @classmethod
    def drawn(cls, rng: random.Random) -> Self:
        """Draw the parameters for one seed."""
        return cls(
            coordinators=rng.choice((1, 1, 2)),
            targets=rng.choice((1, 2)),
            is_compacted=rng.random() < 0.4,
            clients=rng.choice((1, 2, 3)),
            messages_max=rng.choice((1, 3, 8)),
            delay_ms_max=rng.choice((0, 100, 1_000, 4_000)),
            think_s=rng.choice((0.02, 0.05, 0.2)),
            cancels=rng.choice((0.0, 0.1, 0.3)),
            reschedules=rng.choice((0.0, 0.1, 0.3)),
            late=rng.choice((0.0, 0.1, 0.4)),
            late_s=rng.choice((0.1, 0.5, 2.0)),
            deletes_topic=(last := rng.random()) < 0.3,
            lowers_limit=last > 0.6,
        )


def draw(rng: random.Random, cluster: Odds) -> tuple[Odds, DelayOdds]:
    """Draw a run without administrators, with clients of delayed messages in place of most other clients.

    In half of the runs wall clocks jump often.
    """
    cluster = cluster.with_few_clients(rng)
    at_worst = {kind: rng.choice((0.0, 0.05, 0.2)) for kind in AIMED}
    clocks = ("wall clock",) * rng.choice((0, 0, 1, 2))
    delays = DelayOdds.drawn(rng)
    delays = replace(delays, removes_partitions=beside(rng).random() < 0.4)
    cluster = replace(
        cluster,
        settings=replace(cluster.settings, delayed_partitions=delays.coordinators),
        timed=(*cluster.timed, *clocks),
        aimed={**{kind: min(cluster.aimed[kind], 0.02) for kind in cluster.aimed}, **at_worst},
        pause_s=max(cluster.pause_s, rng.choice((0.3, 0.8, 1.5))),
        faults_s=max(cluster.faults_s, 8.0),
        partitions=1,
    )
    return cluster, delays
