"""Draws the random parameters of a run of whole brokers: faults and their rates, load and settings.

A run with all kinds of faults at once finds few errors. So most runs have only a few kinds of faults, some
rare and some frequent (swarm testing).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from verification.simulator.broker_odds import BrokerOdds
from verification.simulator.network import NetworkOdds

Own = TypeVar("Own")

TIMED_FAULTS: Final = (
    "kill",
    "lose power",
    "lose power in a change",
    "lose all power",
    "kill all",
    "pause",
    "stop",
    "isolate leader",
    "depose",
    "isolate",
    "halves",
    "one way",
    "level",
    "break connections",
    "silent links",
    "slow links",
    "slow disk",
    "stall disk",
    "full disk",
    "failing sync",
    "wall clock",
    "transfer",
    "lead again",
)
"""Kinds of faults that are injected at random times."""

MOVES: Final = ("reassign", "transfer by hand")
"""Actions of operators, which are not faults. Only some runs have them, and then often."""

STALE_METADATA: Final = "stale metadata"
"""Fault: brokers use old metadata. Only in runs with moves of replicas or with administrators."""

FORGET: Final = "forget"
"""Fault: a machine loses files. In some runs, independent of their other faults."""

AWAY: Final = "away"
"""Fault: a machine is off for long. Only in runs in which the beginnings of logs are deleted meanwhile."""

AIMED_FAULTS: Final = (
    "after a vote",
    "after winning",
    "after a commit",
    "after an acknowledgement",
    "after a sync",
)
"""Kinds of faults that are injected at critical moments."""

AFTER_A_METADATA_COMMIT: Final = "after a metadata commit"
"""Fault: the active controller crashes right after a commit. Only in runs with administrators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """The random parameters of one run."""

    brokers: int
    partitions: int
    replicas: int
    settings: BrokerOdds
    sync_s: float
    network: NetworkOdds
    rates: tuple[float, ...]  # of the brokers' clocks
    faults_s: float  # duration of the phase with faults
    pause_s: float  # between two timed faults
    timed: tuple[str, ...]
    aimed: dict[str, float]  # the probability of each at its moment
    producers: int
    consumers: int
    pipeline: int  # batches of one producer that may be in flight
    think_s: float
    padding_bytes: int  # of some records: a torn write beyond a sector leaves holes in a batch
    segment_bytes: int
    churns_topics: bool
    retention_bytes: int = -1  # of each partition that clients use; -1: everything is kept
    retention_ms: int = -1  # likewise
    uses_create_times: bool = False
    administrators: int = 0  # that use the same names
    deletes_on_request: bool = False  # a client deletes the oldest records of the others
    recovers: bool = False  # and recover unsafely
    lies_about_syncs: bool = False
    turn_s: float = 0.0  # CPU time of one callback of a broker; with a few milliseconds it is overloaded
    busy_s: float = 0.0  # between two quiet phases
    quiet_s: float = 0.0  # without requests and new faults; 0: never
    offsets_are_compacted: bool = False  # in the run, with small segments
    scenarios: tuple[object, ...] = ()  # the parameters of each scenario of the run

    @classmethod
    def drawn_long(cls, rng: random.Random) -> Odds:
        """Draw a run that has quiet phases of minutes, during which all pending work completes."""
        drawn = cls.drawn(rng)
        busy_s, quiet_s = rng.choice((4.0, 8.0)), rng.choice((60.0, 200.0, 600.0))
        return replace(
            drawn,
            busy_s=busy_s,
            quiet_s=quiet_s,
            faults_s=rng.choice((1, 2, 3)) * (busy_s + quiet_s) + busy_s,
        )

    @classmethod
    def drawn(cls, rng: random.Random) -> Odds:
        """Draw the parameters of a run. Each kind of fault is often absent, sometimes rare and sometimes
        frequent.
        """
        brokers = rng.choice((3, 3, 3, 3, 5))
        timed = rng.sample(TIMED_FAULTS, rng.choice((1, 2, 3, 5, 8)))
        drawn = cls(
            brokers=brokers,
            partitions=rng.choice((1, 1, 2)),
            replicas=rng.choice((3, 3, 3, 3, 3, 1)),
            settings=BrokerOdds(
                tick_ms=rng.choice((50, 100)),
                election_ticks=rng.choice((5, 8)),
                quiesce_ticks=rng.choice((15, 60)),
            ),
            sync_s=rng.choice((0.0005, 0.003, 0.02)),
            network=NetworkOdds(
                latency_s=rng.choice((0.0005, 0.005)),
                jitter_s=rng.choice((0.0, 0.02, 0.2)),
                refusal_odds=rng.choice((0.0, 0.0, 0.005, 0.03)),
                replay_odds=rng.choice((0.0, 0.0, 0.2, 0.5)),
            ),
            rates=tuple(rng.choice((1.0, 1.0, 0.9, 1.1)) for _ in range(brokers)),
            faults_s=rng.choice((4.0, 6.0, 10.0)),
            pause_s=rng.choice((0.1, 0.3, 0.8)),
            timed=tuple(timed),
            aimed={name: rng.choice((0.0, 0.0, 0.02, 0.1)) for name in AIMED_FAULTS},
            producers=rng.choice((1, 2, 3)),
            consumers=rng.choice((0, 1, 2)),
            pipeline=rng.choice((1, 1, 3)),
            think_s=rng.choice((0.01, 0.05, 0.2)),
            padding_bytes=rng.choice((0, 0, 1500)),
            segment_bytes=rng.choice((1024, 4096, 1 << 20)),
            churns_topics=rng.random() < 0.25,
        )
        if rng.random() < 0.3:
            drawn = drawn._with_moves(rng)
        if rng.random() < 0.33:
            drawn = drawn._with_retention(rng)
        if rng.random() < 0.33:
            drawn = replace(drawn, timed=(*drawn.timed, *(FORGET,) * rng.choice((1, 1, 3))))
        return drawn._with_administrators(rng) if rng.random() < 0.33 else drawn

    def with_few_clients(self, rng: random.Random) -> Odds:
        """Return a copy with few clients. Compaction runs often, and more of these runs move replicas and
        lose files.
        """
        fewer = replace(
            self,
            producers=1,
            consumers=min(self.consumers, 1),
            churns_topics=False,
            administrators=0,
            recovers=False,
            replicas=3,
            think_s=max(self.think_s, 0.05),
            timed=tuple(kind for kind in self.timed if kind in (*TIMED_FAULTS, *MOVES, AWAY, FORGET)),
            aimed={kind: self.aimed[kind] for kind in AIMED_FAULTS},
            faults_s=max(self.faults_s, 6.0),
        ).with_check_ms(min(self.settings.retention_check_interval_ms, rng.choice((100, 500))))
        if MOVES[0] not in fewer.timed and rng.random() < 0.5:
            fewer = fewer._with_moves(rng)
        if FORGET not in fewer.timed and rng.random() < 0.3:
            fewer = replace(fewer, timed=(*fewer.timed, FORGET))
        if AWAY not in fewer.timed and rng.random() < 0.3:
            fewer = replace(fewer, timed=(*fewer.timed, AWAY))
        return fewer

    @property
    def ages_disks(self) -> bool:
        """True if files are lost or copied in the run: then disks increase their age often."""
        return FORGET in self.timed or self.settings.ages_disks

    def of(self, kind: type[Own]) -> Own | None:
        """Return the parameters of one scenario in this run; None if the run does not have the scenario."""
        return next((own for own in self.scenarios if isinstance(own, kind)), None)

    def having(self, own: object) -> Odds:
        """Return a copy with a scenario's parameters; they replace the scenario's former parameters."""
        return replace(self, scenarios=(*self.without(type(own)).scenarios, own))

    def without(self, kind: type[object]) -> Odds:
        """Return a copy without the scenario whose parameters have the type ``kind``."""
        return replace(self, scenarios=tuple(own for own in self.scenarios if not isinstance(own, kind)))

    def with_check_ms(self, check_ms: int) -> Odds:
        """Return a copy in which brokers search for records to delete at this interval."""
        return replace(self, settings=replace(self.settings, retention_check_interval_ms=check_ms))

    @property
    def deletes_records(self) -> bool:
        """True if retention or a client deletes records."""
        return self.deletes_on_request or max(self.retention_bytes, self.retention_ms) >= 0

    @property
    def topic_config(self) -> dict[str, int | str]:
        """The configuration of the topic that clients use; keys have underscores for dots."""
        times = "CreateTime" if self.uses_create_times else "LogAppendTime"
        config: dict[str, int | str] = {
            "retention_bytes": self.retention_bytes,
            "message_timestamp_type": times,
        }
        return config if self.retention_ms < 0 else {**config, "retention_ms": self.retention_ms}

    def _with_moves(self, rng: random.Random) -> Odds:
        """Return a copy in which replicas move, mostly with more brokers than a partition has replicas."""
        brokers = max(self.brokers, rng.choice((3, 4, 4, 5)))
        rates = (*self.rates, *(1.0 for _ in range(brokers - self.brokers)))
        return replace(self, brokers=brokers, rates=rates, timed=(*self.timed, *MOVES, STALE_METADATA))

    def _with_administrators(self, rng: random.Random) -> Odds:
        """Return a copy in which topics are created, deleted and moved, while controllers crash and metadata
        is old.

        In some other runs topics without a majority are recovered. These runs have few other faults, because
        brokers must count as dead.
        """
        brokers = max(self.brokers, rng.choice((3, 4, 5, 5)))
        drawn = replace(
            self,
            brokers=brokers,
            rates=(*self.rates, *(1.0 for _ in range(brokers - self.brokers))),
            faults_s=10.0,
            timed=(*rng.sample(self.timed, min(len(self.timed), 2)), AWAY, "kill", STALE_METADATA),
            aimed={**self.aimed, AFTER_A_METADATA_COMMIT: rng.choice((0.0, 0.05, 0.2))},
            pause_s=max(self.pause_s, 0.3),
            administrators=rng.choice((2, 3)),
            settings=replace(self.settings, trash_delay_ms=rng.choice((0, 1000, 3_600_000))),
        )
        if rng.random() < 0.6:
            return drawn
        rates = (*drawn.rates, *(1.0 for _ in range(5 - brokers)))
        aimed = dict.fromkeys(drawn.aimed, 0.0)
        return replace(
            drawn,
            brokers=5,
            rates=rates,
            timed=("transfer",),
            aimed=aimed,
            faults_s=18.0,
            recovers=True,
            think_s=0.2,  # otherwise, with so few faults, thousands of records are written
        )

    def _with_retention(self, rng: random.Random) -> Odds:
        """Return a copy in which the beginnings of logs are deleted during other faults. Machines that were
        off then start below the log start.
        """
        drawn = replace(
            self,
            timed=(*rng.sample(self.timed, min(len(self.timed), 3)), AWAY),
            think_s=min(self.think_s, 0.05),
            segment_bytes=1024,
            padding_bytes=rng.choice((100, 300)),
            retention_bytes=rng.choice((0, 3000, 5000)),
        ).with_check_ms(rng.choice((100, 500)))
        return drawn._with_age(rng) if rng.random() < 0.5 else drawn

    def _with_age(self, rng: random.Random) -> Odds:
        """Return a copy in which records are deleted by age while wall clocks jump, with few other faults.

        Monotonic clocks run equally fast, so that ages are exact.
        """
        return replace(
            self,
            timed=(rng.choice(self.timed), "wall clock", "wall clock"),
            aimed=dict.fromkeys(AIMED_FAULTS, 0.0),
            pause_s=0.3,
            rates=(1.0,) * self.brokers,
            retention_bytes=-1,
            retention_ms=rng.choice((1000, 2500, 5000)),
            uses_create_times=rng.random() < 0.3,
        )


CALM: Final = Odds(
    brokers=3,
    partitions=1,
    replicas=3,
    settings=BrokerOdds(tick_ms=50, election_ticks=5, quiesce_ticks=15),
    sync_s=0.0005,
    network=NetworkOdds(latency_s=0.0005, jitter_s=0.0, refusal_odds=0.0, replay_odds=0.0),
    rates=(1.0, 1.0, 1.0),
    faults_s=0.0,
    pause_s=1.0,
    timed=(),
    aimed=dict.fromkeys(AIMED_FAULTS, 0.0),
    producers=0,
    consumers=0,
    pipeline=1,
    think_s=0.0,
    padding_bytes=0,
    segment_bytes=1024,
    churns_topics=False,
)
"""Parameters without faults and clients, for runs that add their own."""
