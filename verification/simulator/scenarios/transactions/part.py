"""The transactions of a run: the clients, and the times of the checks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import partial
from typing import Final

from raftlog.errors import RaftlogError
from raftlog.node.codec import FrameKind
from raftlog.records.control import Marker
from raftlog.types import GroupId, TopicPartition
from transactions.batches import KEY_END, partition_of
from transactions.records import TOPIC, Handle, Participant
from verification.simulator.clients import TIMEOUT_MS, Client
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.part import OFTEN_COMPACTED, Actor, Config, Part, Topic
from verification.simulator.scenarios.expiry.odds import ExpiryOdds
from verification.simulator.scenarios.fewer_partitions.actors import (
    WITHOUT_RETURN,
    Known,
    PartitionAdministrator,
)
from verification.simulator.scenarios.transactions.clients import Story
from verification.simulator.scenarios.transactions.ending import Ending
from verification.simulator.scenarios.transactions.idle import FORGOTTEN, IdleUser
from verification.simulator.scenarios.transactions.judge import Judge
from verification.simulator.scenarios.transactions.odds import (
    AFTER_A_DECISION,
    BEFORE_A_MARKER,
    BETWEEN_MARKERS,
    FIRST,
    JOURNAL,
    LEDGER,
    PASSING,
    PASSING_PARTITIONS,
    SECOND,
    TransactionOdds,
)
from verification.simulator.scenarios.transactions.one_shots import OneShotClient
from verification.simulator.scenarios.transactions.producers import PlainProducer, TransactionalProducer
from verification.simulator.scenarios.transactions.queries import Driver, check_batch
from verification.simulator.scenarios.transactions.readers import TransactionReader
from verification.simulator.scenarios.transactions.sinks import KEY, Operator, Sink
from verification.simulator.scenarios.transactions.wide import NEAR, REFUSED, WideSink
from verification.simulator.simulated_cluster import SimulatedCluster

MARKER_S: Final = 0.02  # after the decision
REMOVED: Final = "partition of transactions removed"
SENT: Final = "T13 whatever is proposed can be sent"
LATE_MARKER_ODDS: Final = 0.5  # of ``TransactionOdds.late``


class Transactions(Part):
    """The clients and the judge of transactions in one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: TransactionOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._faults = faults
        self._rng = cluster.rng("late markers")
        self._client = Client(cluster, "of late markers")
        self.judge = Judge(cluster)
        self.judge.on_decided = self._is_decided
        self.judge.on_marked = self._is_marked
        self.story = Story.begin(odds, self.judge)
        self.judge.on_batch = partial(check_batch, self.story)
        self.ending = Ending(cluster, self.story)
        expiry = cluster.odds.of(ExpiryOdds)
        self._idle = None if expiry is None else IdleUser(cluster, expiry, self.story)
        if self._idle is not None:
            self.judge.on_row = self._idle.committed
        self._wide = None if odds.wide is None else WideSink(cluster, odds.wide, self.story)
        cluster.network.on_too_large = self._is_too_large

    def committed(self, machine: Machine, group_id: GroupId) -> None:
        """Handle a group's commit index that has changed on a machine."""
        self.judge.committed(machine, group_id)

    def topics(self, config: Config) -> list[Topic]:
        """Return the topics of the run; ``__transactions`` is sometimes missing: its first user then creates
        it.
        """
        odds = self._odds
        topics = [Topic(LEDGER, odds.ledger_partitions, config), Topic(JOURNAL, 1, config)]
        if odds.removes_partitions:
            topics.append(Topic(PASSING, PASSING_PARTITIONS, {"retention_ms": -1}))
        if odds.is_compacted:
            topics.append(Topic(TOPIC, odds.coordinators, OFTEN_COMPACTED))
        return topics

    def target(self, rng: random.Random) -> tuple[str, int] | None:
        """Return a topic, mostly of the scenario."""
        return rng.choice(self._odds.topics) if rng.random() < 0.8 else None

    def actors(self) -> list[Actor]:
        """Return the clients, operators and administrators of the run."""
        cluster, odds, story = self._cluster, self._odds, self.story
        ids = [f"id-{number}" for number in range(odds.ids)]
        tasks = [f"{KEY}{KEY_END}{number}" for number in range(odds.sink_tasks)]
        clients: list[Actor] = [
            TransactionalProducer(cluster, f"{name} {number}", name, story, prepares=name in tasks)
            for name in (*ids, *tasks)
            for number in range(odds.incarnations)
        ]
        by_hand = [*ids, *tasks, *odds.query_ids]
        clients.append(PlainProducer(cluster, "plain", story))
        clients += [Operator(cluster, story, by_hand)] if by_hand else []
        clients += [] if self._idle is None else [self._idle]
        clients += [] if self._wide is None else [self._wide]
        clients += [Sink(cluster, story)] if tasks else []
        clients += [Driver(cluster, f"first-{number}", story, FIRST) for number in range(odds.drivers)]
        clients += [Driver(cluster, "second", story, SECOND)] if odds.drivers else []
        for number, target in enumerate(story.targets):
            clients.append(TransactionReader(cluster, f"t{number}", story, target, committed=True))
        if odds.has_one_shots:
            clients.append(OneShotClient(cluster, "one-shot", story))
        if odds.removes_partitions:
            clients.append(
                PartitionAdministrator(
                    cluster,
                    "of participants",
                    Known(),
                    topic=PASSING,
                    partitions_max=PASSING_PARTITIONS,
                    weights=WITHOUT_RETURN,
                )
            )
        clients.append(TransactionReader(cluster, "u0", story, story.targets[0], committed=False))
        return clients

    async def check(self) -> Mapping[str, int]:
        """Check that readers get committed transactions whole and once. Returns counts that the run
        reports.
        """
        forgotten = {} if self._idle is None else {FORGOTTEN: self._idle.forgotten}
        wide = {} if self._wide is None else {NEAR: self._cluster.network.near, REFUSED: self._wide.refused}
        counts = {REMOVED: len(self.judge.former), **forgotten, **wide}
        await self.ending.check()
        return counts

    async def actors_ended(self) -> None:
        """Wait until all late requests have ended; then check that all transactions end and new ones work."""
        while self.story.requests:
            await asyncio.wait(self.story.requests)
        await self.ending.settled()
        await self.ending.works()

    def _is_too_large(self, frame: bytes) -> None:
        """Check a frame above the size limit: only a frame of a request or an answer may be too
        large (T13).
        """
        if frame[0] not in (FrameKind.CALL, FrameKind.ANSWER):
            self._cluster.violated(SENT, f"a frame of kind {frame[0]} has {len(frame)} bytes")

    # Moments for faults.

    def _is_decided(self, handle: Handle, machine: Machine) -> None:
        targets = self.judge.decided.partitions.get(handle, ())
        leaders = [leader for target in targets if (leader := self._leader(target)) is not None]
        self._faults.aim(AFTER_A_DECISION, machine)
        for leader in leaders:
            self._faults.aim(BEFORE_A_MARKER, leader)
        for target in targets:
            self._perhaps_mark_again(handle, target, MARKER_S)

    def _is_marked(self, handle: Handle, target: Participant) -> None:
        numbers = handle.producer_id, handle.epoch
        targets = self.judge.decided.partitions.get(handle, ())
        coordinator = self._leader((TOPIC, partition_of(handle.transactional_id, self._odds.coordinators)))
        if coordinator is not None and any(
            numbers not in self.judge.log_of(each).outcomes for each in targets
        ):
            self._faults.aim(BETWEEN_MARKERS, coordinator)
        self._perhaps_mark_again(handle, target, self._odds.late_s)

    def _leader(self, target: Participant) -> Machine | None:
        record = self.judge.records.get(target)
        if record is None:
            return None
        for machine in self._cluster.machines:
            group = None if machine.broker is None else machine.broker.host.groups.get(record.group_id)
            if group is not None and group.is_leader:
                return machine
        return None

    def _perhaps_mark_again(self, handle: Handle, target: Participant, mean_s: float) -> None:
        if not self._cluster.is_healed and self._rng.random() < LATE_MARKER_ODDS * self._odds.late:
            is_commit = self.judge.decided.outcomes[handle]
            self.story.start(self._mark_again(handle, target, is_commit, mean_s))

    async def _mark_again(self, handle: Handle, target: Participant, is_commit: bool, mean_s: float) -> None:
        """Write a marker once more, as a former coordinator does: the partition must store only one (T3)."""
        await asyncio.sleep(self._rng.expovariate(1.0) * mean_s)
        marker = Marker(handle.producer_id, handle.epoch, is_commit, 0, 0)
        try:
            await self._client.ask(
                self._client.machine(),
                lambda broker: broker.gateway.mark(TopicPartition(*target), marker, timeout_ms=TIMEOUT_MS),
            )
        except RaftlogError:
            return
