"""One run: a cluster, its clients and its faults, from the first boot to the verdict.

Decides: the phases of a run and what becomes of a violation. Read ``event_loop`` for time,
``machine`` for what a death leaves, ``oracles`` for what is looked at after every step,
``convergence`` for what must hold in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from functools import partial

from chaos.checkers import check
from chaos.history import History, Outcome
from chaos.simulator.administrators import Administrator, SharedNames
from chaos.simulator.answers import Answers
from chaos.simulator.churn import Churner
from chaos.simulator.clients import TIMEOUT_MS, TOPIC, Client, Consumer, Producer
from chaos.simulator.clocks import Clocks
from chaos.simulator.convergence import Convergence
from chaos.simulator.event_loop import Process, SimulatedLoop
from chaos.simulator.faults import Faults
from chaos.simulator.http.setup import HttpSide
from chaos.simulator.incarnations import Incarnations
from chaos.simulator.log_starts import LogStarts
from chaos.simulator.machine import Machine
from chaos.simulator.network import SimulatedNetwork
from chaos.simulator.odds import Odds
from chaos.simulator.oracles import Oracles
from chaos.simulator.quiet import quiet
from chaos.simulator.result import Result, Violation
from chaos.simulator.schedule import Schedule
from chaos.simulator.trace import Trace
from raftlog.errors import RaftlogError, TopicExists
from raftlog.node.group_host import GroupHost
from raftlog.testing.fake_filesystem import PowerLost
from raftlog.types import GroupId, NodeId, TopicPartition

LONGEST_RUN_S = 300.0  # beyond the time in which things go wrong
VIOLATIONS_MAX = 3  # of one kind
SETUP_S = 30.0  # then nothing goes wrong any more


class Simulation:
    """One seed's run. Everything that is drawn comes from ``rng``, by the name of who draws."""

    def __init__(
        self,
        seed: int,
        odds: Odds | None = None,
        *,
        schedule: Schedule | None = None,
        keeps_lines: bool = False,
        stops_at_violation: bool = False,
    ) -> None:
        self.seed = seed
        self.schedule = schedule
        self._stops_at_violation = stops_at_violation
        self.odds = odds or Odds.drawn(self.rng("odds"))
        self.violations: list[Violation] = []
        self.history = History()
        self.is_producing = True
        self.judged = [TopicPartition(TOPIC, number) for number in range(self.odds.partitions)]
        thread_rng = self.rng("threads")
        self.loop = SimulatedLoop(self, lambda process: thread_rng.random() * 0.002)
        self.trace = Trace(lambda: self.loop.now, keeps_lines=keeps_lines)
        self.network = SimulatedNetwork(self.loop, self.rng("network"), self.odds.network)
        self.oracles = Oracles(self.violated)
        self.machines = [Machine(self, NodeId(number)) for number in range(1, self.odds.brokers + 1)]
        self.incarnations = Incarnations(self.oracles, self.violated)
        self.answers = Answers(self.oracles, self.machines, self.violated)
        self.log_starts = LogStarts(self)
        self.clocks = Clocks(self)
        self.faults = Faults(self)
        self.http = None if self.odds.http is None else HttpSide(self, self.odds.http)
        self._by_process: dict[Process, Machine] = {}
        self._processes = 0
        self._producer_ids: set[int] = set()
        self._wire()

    def _wire(self) -> None:
        by_node = {machine.node: machine for machine in self.machines}

        def frame_left(sender: NodeId, to: NodeId, frame: bytes) -> None:
            self.oracles.frame(by_node[sender], to, frame)
            self.faults.frame_left(by_node[sender], to, frame)

        self.network.on_frame = frame_left
        self.network.on_arrival = lambda sender, to, frame: self.trace.frame(frame)
        self.oracles.on_leader = self._leader_is_new
        self.oracles.on_commit = self._committed
        self.oracles.on_log_start = self.log_starts.moved
        self.oracles.on_opened = self.incarnations.opened
        for machine in self.machines:
            machine.disk.lies_about_syncs = self.odds.lies_about_syncs
            machine.rate = self.odds.rates[machine.node - 1]
            machine.syncs.on_synced = partial(self.faults.synced, machine)

    def rng(self, name: str) -> random.Random:
        """The stream of one subsystem: what others draw does not move it."""
        return random.Random(f"{self.seed} {name}")

    def next_process(self) -> int:
        """A number for a client that nobody had before."""
        self._processes += 1
        return self._processes

    def given_producer_id(self, producer_id: int) -> None:
        """No id is given twice (I14)."""
        if producer_id in self._producer_ids:
            self.violated("I14 producer ids are unique", f"{producer_id} was given twice")
        self._producer_ids.add(producer_id)

    def violated(self, invariant: str, detail: str) -> None:
        """Take note of what must not be."""
        self.trace.note(None, f"VIOLATION {invariant}: {detail}")
        if sum(known.invariant == invariant for known in self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(self.loop.now, invariant, detail))
        self.loop.is_stopped = self._stops_at_violation

    # What the loop tells.

    def stepped(self, process: Process, function: Callable[..., object]) -> None:
        """A callback of a process has run. Whatever a core is told, its host drains it in the same moment."""
        if getattr(function, "__func__", None) is GroupHost._drain:
            machine = self._by_process.get(process)
            if machine is not None:
                self.oracles.stepped(machine)

    def begins(self, machine: Machine, process: Process) -> None:
        """A machine has a new process."""
        self._by_process[process] = machine

    def failed(self, process: Process | None, message: str, error: BaseException | None) -> None:
        """Something was raised where nobody catches."""
        if isinstance(error, PowerLost) or (process is not None and not process.is_alive):
            return
        name = "a client" if process is None else process.name
        self.violated("I9 no error without a catcher", f"{name}: {message}: {error!r}")

    def _leader_is_new(self, machine: Machine, group: GroupId, term: int) -> None:
        self.trace.note(machine.node, f"leads group {group} in term {term}")
        self.clocks.leads(machine, group, term)
        self.faults.won(machine, group, term)

    def _committed(self, machine: Machine, group: GroupId, commit: int) -> None:
        self.faults.committed(machine, group, commit)
        if self.http is not None:
            self.http.judge.committed_to(group)

    # The phases.

    def run(self) -> Result:
        """All of it."""
        try:
            self.loop.run(self.live(), LONGEST_RUN_S + self.odds.faults_s + self.odds.quiet_s)
        except (TimeoutError, RuntimeError) as error:
            self.violated("L1 the run ends", repr(error))
        finally:
            self.loop.close()
        for anomaly in () if self.loop.is_stopped else check(self.history):  # stopped: no final reads
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
        """Trouble, then peace, then what must be true in the end."""
        self.faults.replay()
        for machine in self.machines:
            machine.start()
        loop = asyncio.get_running_loop()
        odds = self.odds
        config = odds.topic_config
        if odds.http is not None and not odds.http.is_append_time:
            config["message_timestamp_type"] = "CreateTime"
        making = loop.create_task(self.make_topic(TOPIC, odds.partitions, odds.replicas, **config))
        await asyncio.wait([making], timeout=SETUP_S)
        if not making.done():  # whoever is elected is struck at once, again and again
            self.heal()
        await making
        clients = [loop.create_task(client.run()) for client in self._clients()]
        clients += [] if self.http is None else self.http.begin()
        breaking = loop.create_task(self.faults.run())
        await asyncio.sleep(odds.faults_s)
        self.heal()
        breaking.cancel()
        convergence = Convergence(self)
        await convergence.reached()
        if self.http is not None:
            await self.http.move_leaders()
            await convergence.reached(self.machines[:1])
        self.is_producing = False
        await asyncio.gather(*clients)
        if self.http is not None:
            await self.http.probe()
        await convergence.settled()
        await convergence.read_everything()

    def heal(self) -> None:
        """From now on nothing goes wrong."""
        self.faults.heal()
        if self.http is not None:
            self.http.streams.heal()

    def _clients(self) -> list[Producer | Consumer | Churner | Administrator]:
        odds, shared = self.odds, SharedNames()
        clients: list[Producer | Consumer | Churner | Administrator] = [
            Producer(self, f"p{number}", number % odds.partitions, has_id=number < 2)
            for number in range(odds.producers)
        ]
        clients += [
            Consumer(self, f"c{number}", number % odds.partitions) for number in range(odds.consumers)
        ]
        clients += [Administrator(self, f"admin {number}", shared) for number in range(odds.administrators)]
        if odds.churns_topics:
            clients.append(Churner(self, "churner"))
        return clients

    async def rest(self) -> None:
        """In a quiet phase: until it is over."""
        if self.odds.quiet_s and not self.faults.is_healed:
            period_s = self.odds.busy_s + self.odds.quiet_s
            since_s = self.loop.now % period_s
            if since_s > self.odds.busy_s:
                await asyncio.sleep(period_s - since_s)

    async def make_topic(self, name: str, partitions: int, replicas: int, **config: int | str) -> None:
        """Until it is there. ``config`` has underscores for dots."""
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
                        ),
                        self.answers.created,
                    )
                except TopicExists:
                    return
                return
            await client.pause()


def run(
    seed: int,
    odds: Odds | None = None,
    *,
    schedule: Schedule | None = None,
    keeps_lines: bool = False,
    stops_at_violation: bool = False,
) -> Result:
    """One seed, from beginning to end; with a ``schedule`` just those faults happen."""
    with quiet(collects=True):
        return Simulation(
            seed, odds, schedule=schedule, keeps_lines=keeps_lines, stops_at_violation=stops_at_violation
        ).run()
