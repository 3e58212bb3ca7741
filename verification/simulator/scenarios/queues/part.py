"""The queue of a run: its producer, its workers, and the check that all jobs are done in time (J7)."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import Final

from groups.records import TOPIC
from raftlog.records.keys import partition_for_key
from raftlog.types import GroupId
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.part import Actor, Config, Part, Topic
from verification.simulator.scenarios.queues.actors import JobProducer, Worker
from verification.simulator.scenarios.queues.judge import Judge
from verification.simulator.scenarios.queues.odds import (
    AFTER_A_LEASE,
    AFTER_A_LETTER,
    AFTER_A_REDRIVE,
    CREW,
    MAIL,
    QueueOdds,
)
from verification.simulator.scenarios.queues.redriver import REDRIVEN, Redriver
from verification.simulator.simulated_cluster import SimulatedCluster

IN_TIME: Final = "J7 without faults every job is done, and every replica knows it"
RECOVERY_S: Final = 30.0


class Queue(Part):
    """The producer, the workers and the judge of a queue in one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: QueueOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._faults = faults
        self._partition = partition_for_key(CREW.encode(), cluster.odds.settings.offsets_partitions)
        self.judge = Judge(cluster, self._partition, is_ordered=odds.is_ordered, selection=odds.selection)
        self.judge.on_leased = partial(faults.aim, AFTER_A_LEASE)
        self.judge.on_buried = self._is_buried
        self.judge.on_redriven = partial(faults.aim, AFTER_A_REDRIVE)
        self._workers = [
            Worker(cluster, f"worker {number}", odds, self.judge) for number in range(odds.workers)
        ]
        self._producer = JobProducer(cluster, odds)
        self._redriver = Redriver(cluster, odds, self.judge)

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Handle a group's commit index that has changed on a machine."""
        self.judge.committed(machine, group_id)

    def topics(self, config: Config) -> list[Topic]:
        """Return the topic of the jobs."""
        return [Topic(MAIL, self._odds.partitions, {})]

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """Return the topic of the jobs, or the topic of their rows, with its number of partitions; sometimes
        None.
        """
        return rng.choice(((TOPIC, 1), (MAIL, self._odds.partitions))) if rng.random() < 0.8 else None

    def actors(self) -> list[Actor]:
        """Return the producer, the workers, and the redriver if the run redrives jobs."""
        redrivers = [self._redriver] if self._odds.redrive_s else []
        return [self._producer, *self._workers, *redrivers]

    async def actors_ended(self) -> None:
        """Wait until all late requests have ended; then let diligent workers complete all jobs in
        time (J7).
        """
        for requests in (*(worker.requests for worker in self._workers), self._redriver.requests):
            while requests:
                await asyncio.wait(requests)
        odds = self._odds
        within_s = RECOVERY_S + odds.deliveries_max * (odds.lease_ms + odds.nack_ms) / 1000
        deadline = self._cluster.loop.now + within_s
        while (problem := self._problem()) is not None:
            if self._cluster.loop.now > deadline:
                self._cluster.violated(IN_TIME, problem)
                break
            for machine in self._cluster.machines:
                await self._workers[0].round(machine, is_diligent=True)
            self.judge.look()

    async def check(self) -> dict[str, int]:
        """Check that every replica has the committed rows, and that each answer agrees with a log.

        Returns how often dead letters became jobs again.
        """
        self.judge.look()
        if self.judge.waiting:
            self._cluster.violated(IN_TIME, f"{len(self.judge.waiting)} checks are of what no log shows")
        record = self.judge.records.get((TOPIC, self._partition))
        for machine in self._cluster.machines:
            if machine.broker is None or record is None or machine.node not in record.membership.members:
                continue
            state = machine.broker.groups.coordinators[self._partition].state
            jobs = {slot: (job.partition, job.offset) for (_, slot), job in state.jobs.get(CREW, {}).items()}
            queues = {partition: row for (_, partition), row in state.queues.get(CREW, {}).items()}
            if (jobs, queues) != (self.judge.slots, self.judge.queues):
                detail = f"{machine.name} has {jobs} and {queues}"
                self._cluster.violated(IN_TIME, f"{detail}; {self.judge.slots} and {self.judge.queues}")
        return {REDRIVEN: sum(known.redrives for known in self.judge.jobs.values())}

    def _problem(self) -> str | None:
        if not self.judge.keys and not self.judge.others:
            return None if not self._producer.is_used else "no record is known"
        for place in self.judge.keys:
            known = self.judge.jobs.get(place)
            if known is None or not known.is_done:
                return f"{place} is not done: {known}"
        return None

    def _is_buried(self) -> None:
        record = self.judge.records.get((TOPIC, self._partition))
        if record is None:
            return
        for machine in self._cluster.machines:
            group = None if machine.broker is None else machine.broker.host.groups.get(record.group_id)
            if group is not None and group.is_leader:
                self._faults.aim(AFTER_A_LETTER, machine)
