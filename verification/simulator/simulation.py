"""Carries out one run of a cluster with clients and faults, from the first start to the result.

Decides: the phases of a run. Read ``event_loop`` for time, ``machine`` for the state after a crash,
``checker`` for the checks after every step, ``convergence`` for the checks at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Unpack

from broker.broker import Broker
from broker.listeners.listener import Listener
from chaos.checkers import Severity, check
from chaos.history import Outcome
from delayed.records import TOPIC as DELAYED
from groups.records import TOPIC as OFFSETS
from raftlog.errors import RaftlogError, TopicExists
from raftlog.node.codec import FrameKind
from raftlog.node.group.raft_group import RaftGroup
from raftlog.types import GroupId, NodeId
from transactions.records import TOPIC as TRANSACTIONS
from verification.simulator import scenarios
from verification.simulator.administrators import Administrator, SharedNames
from verification.simulator.churn import Churner
from verification.simulator.clients import TIMEOUT_MS, TOPIC, Client, Consumer, Producer
from verification.simulator.convergence import Convergence
from verification.simulator.event_loop import Process
from verification.simulator.faults import Aim, Faults
from verification.simulator.gc_off import gc_off
from verification.simulator.machine import Machine
from verification.simulator.memberships import Memberships
from verification.simulator.odds import Odds
from verification.simulator.part import OFTEN_COMPACTED, Config, Part
from verification.simulator.records import GroupRecord, ReplicaRecord
from verification.simulator.result import Result
from verification.simulator.run import RunOptions
from verification.simulator.simulated_cluster import SimulatedCluster

LONGEST_RUN_S = 300.0  # including the time without faults
SETUP_S = 30.0  # without faults


class Simulation(SimulatedCluster):
    """The run of one seed, with clients and faults."""

    def __init__(self, seed: int, odds: Odds | None = None, **options: Unpack[RunOptions]) -> None:
        super().__init__(seed, odds, **options)
        self.faults = Faults(self)
        aims = dict[str, Aim]()
        for listed in scenarios.ALL:
            part = listed.scenario.of(self, self.faults)
            self.parts += [] if part is None else [part]
            aims |= listed.scenario.aims
        self.faults.begin(aims)
        self.memberships = Memberships(self)

        def frame_left(sender: NodeId, to: NodeId, frame: bytes) -> None:
            if frame[0] == FrameKind.RAFT and sender > 0:  # not of a copy
                machine = self.machines[sender - 1]
                self.checker.frame(machine, to, frame)
                self.faults.frame_left(machine, to, frame)

        self.network.on_frame = frame_left
        self.checker.on_leader = self._leader_is_new
        self.checker.on_vote = self.memberships.voted
        self.checker.on_changed = self._replica_changed
        self.checker.on_commit = self._committed
        for machine in self.machines:
            machine.syncs.on_synced = partial(self.faults.synced, machine)

    def add_machine(self, node: NodeId) -> Machine:
        """Add a machine whose syncs are reported to the faults."""
        machine = super().add_machine(node)
        machine.syncs.on_synced = partial(self.faults.synced, machine)
        return machine

    # Events of machines and checkers.

    def made(self, machine: Machine, broker: Broker) -> None:
        """Subscribe all parts of the run to the metadata of a new broker."""
        super().made(machine, broker)
        for part in self.parts:
            broker.controller.subscribe(part.shown)

    def _replica_changed(self, record: GroupRecord, replica: ReplicaRecord, group: RaftGroup[object]) -> None:
        self.log_starts.changed(record, replica, group)
        self.memberships.changed(record, replica, group)
        for part in self.parts:
            part.changed(record, replica, group)

    def began(self, machine: Machine, process: Process) -> None:
        """Report a machine with a new process to the scenarios."""
        super().began(machine, process)
        for part in self.parts:
            part.began(machine)

    async def serves(self, machine: Machine, broker: Broker) -> Listener | None:
        """Start the HTTP listener of a broker if a scenario has clients over HTTP."""
        listeners = [await part.serves(machine, broker) for part in self.parts]
        return next((listener for listener in listeners if listener is not None), None)

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """Report the end of a process to the scenarios."""
        for part in self.parts:
            part.ended(machine, process, silently=silently)

    def start_again(self) -> None:
        self.faults.start_again()

    def begins_again(self, machine: Machine) -> None:
        """Report a broker whose disk is recognised as an older copy to the scenarios."""
        for part in self.parts:
            part.begins_again(machine)

    def _leader_is_new(self, machine: Machine, group: GroupId, term: int) -> None:
        self.trace.note(machine.node, f"leads group {group} in term {term}")
        self.clocks.leads(machine, group, term)
        self.faults.won(machine, group, term)

    def _committed(self, machine: Machine, group: GroupId, commit: int) -> None:
        self.faults.committed(machine, group, commit)
        for part in self.parts:
            part.committed(machine, group)

    # The phases.

    def run(self) -> Result:
        try:
            self.loop.run(self.live(), LONGEST_RUN_S + self.odds.faults_s + self.odds.quiet_s)
        except (TimeoutError, RuntimeError) as error:
            self.violated("L1 the run ends", repr(error))
        finally:
            self.loop.close()
        for part in () if self.violations else self.parts:
            part.stopped()
        for anomaly in () if self.loop.is_stopped else check(self.history):  # stopped: no final reads
            if anomaly.severity is not Severity.NORMAL:
                self.violated(f"H {anomaly.kind}", f"partition {anomaly.partition}: {anomaly.detail}")
        return Result(
            name=f"brokers:{self.seed}",
            faults=self.faults.counts,
            acknowledged=self.history.count(Outcome.ACKNOWLEDGED),
            violations=tuple(self.violations),
            simulated_s=self.loop.now,
            trace=self.trace.hash,
            timeline=self.trace.timeline(),
            happened=tuple(self.faults.happened),
        )

    async def live(self) -> None:
        """Run the phase with faults, then heal the faults, then run the final checks."""
        self.faults.replay()
        for machine in self.machines:
            machine.start()
        loop = asyncio.get_running_loop()
        odds = self.odds
        config = odds.topic_config
        making = loop.create_task(self._make_topics(config))
        await asyncio.wait([making], timeout=SETUP_S)
        if not making.done():  # each new leader gets a fault at once
            self.heal()
        await making
        clients = self._begin_clients()
        breaking = loop.create_task(self.faults.run())
        await asyncio.sleep(odds.faults_s)
        self.heal()
        breaking.cancel()
        for part in self.parts:
            await part.faults_ended()
        convergence = Convergence(self)
        await convergence.reached()
        for part in self.parts:
            await part.converged(convergence)
        self.is_producing = False
        await asyncio.gather(*clients)
        for part in self.parts:
            await part.actors_ended()
        await convergence.settled()
        await convergence.read_everything()
        for part in self.parts:
            self.faults.counts.update(await part.check())

    def _begin_clients(self) -> list[asyncio.Task[None]]:
        loop = asyncio.get_running_loop()
        clients = [loop.create_task(client.run()) for client in self._clients()]
        for part in self.parts:
            clients += part.start()
        return clients

    def heal(self) -> None:
        """Inject no more faults from now on."""
        self.faults.heal()
        for part in self.parts:
            part.heal()

    def _clients(self) -> list[Producer | Consumer | Churner | Administrator]:
        odds, shared = self.odds, SharedNames()
        clients: list[Producer | Consumer | Churner | Administrator] = [
            Producer(self, f"p{number}", number % odds.partitions, has_id=number < 2)
            for number in range(odds.producers)
        ]
        clients += [
            Consumer(self, f"c{number}", number % odds.partitions) for number in range(odds.consumers)
        ]
        clients += [
            Administrator(self, f"admin {number}", shared, self.faults)
            for number in range(odds.administrators)
        ]
        if odds.churns_topics:
            clients.append(Churner(self, "churner"))
        return clients

    async def _make_topics(self, config: dict[str, int | str]) -> None:
        """Create the topics of the run; ``__offsets`` is created by its first users, as in production."""
        odds = self.odds
        for part in self.parts:
            await part.prepared()
        await self.make_topic(TOPIC, odds.partitions, odds.replicas, **config)
        for part in self.parts:
            await self.make_topics_of(part, config)
        if odds.offsets_are_compacted:
            await self.make_topic(OFFSETS, odds.settings.offsets_partitions, 3, **OFTEN_COMPACTED)

    async def make_topics_of(self, part: Part, config: Config) -> None:
        """Create the topics of one scenario."""
        for topic in part.topics(config):
            await self.make_topic(topic.name, topic.partitions, 3, **topic.config)

    async def make_topic(self, name: str, partitions: int, replicas: int, **config: int | str) -> None:
        """Create a topic; repeat the request until the topic exists.

        The keys of ``config`` have underscores for dots.
        """
        client = Client(self, "admin")
        settings: dict[str, int | str] = {"segment.bytes": self.odds.segment_bytes}
        settings |= {key.replace("_", "."): value for key, value in config.items()}
        while True:
            with contextlib.suppress(RaftlogError):
                try:
                    await client.ask(
                        client.machine(),
                        lambda broker: broker.controller.create_topic(
                            name,
                            partitions=partitions,
                            replication_factor=replicas,
                            config=settings,
                            timeout_ms=TIMEOUT_MS,
                            internal=name in (OFFSETS, TRANSACTIONS, DELAYED),
                        ),
                        self.responses.created,
                    )
                except TopicExists:
                    return
                return
            await client.pause()


def run(seed: int, odds: Odds | None = None, **options: Unpack[RunOptions]) -> Result:
    """Run one seed, from the first start of brokers to the result."""
    with gc_off(collects=True):
        return Simulation(seed, odds, **options).run()
