"""Injects faults into whole brokers, at random times and at critical moments.

Decides: which fault is injected when, and when its effect ends. Each fault draws its details from its own
stream of random numbers, so that no other draw depends on the fault. Counts and records the faults that
happened; with a schedule it injects exactly the scheduled faults, at their times.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from broker.broker import Broker
from partitions.metadata.move_planner import MoveReplicas
from raftlog.errors import Overloaded, RaftlogError
from raftlog.node.group.pending_requests import Proposal
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.batch import Batch
from raftlog.types import METADATA_GROUP, GroupId, NodeId, TopicPartition
from verification.simulator.clients import TIMEOUT_MS, TOPIC
from verification.simulator.link_faults import LinkFaults
from verification.simulator.lost_files import LostFiles
from verification.simulator.machine import Machine
from verification.simulator.odds import (
    AFTER_A_METADATA_COMMIT,
    FORGET,
)
from verification.simulator.part import Timed
from verification.simulator.planted_errors import plant_errors
from verification.simulator.schedule import Fault
from verification.simulator.simulated_cluster import SimulatedCluster

_VOTE, _APPEND_REPLY = 2, 4

Aim = Callable[["Faults", random.Random, Machine], None]
"""A function that injects a fault into a machine at a critical moment."""


class Faults:
    """Injects faults until ``heal`` is called."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.counts: Counter[str] = Counter()
        self.happened: list[Fault] = []
        self._cluster = cluster
        self._rng = cluster.rng("faults")
        self._aim_rng = cluster.rng("aimed faults")
        self._restart_rng = cluster.rng("restarts")
        self._odds = cluster.odds
        self.lost_files = LostFiles(cluster)
        self._links = LinkFaults(cluster, self._later)
        self._timed: dict[str, Timed] = {
            "kill": lambda rng: self._down(self._any(rng).kill),
            "lose power": self._lose_power,
            "lose power in a change": self._lose_power_in_a_change,
            "lose all power": self._lose_all_power,
            "kill all": self._kill_all,
            "pause": self._pause,
            "stop": lambda rng: self._any(rng).stop(),
            "isolate leader": lambda rng: self._links.isolate(rng, self._leader(rng)),
            "depose": self._depose,
            "isolate": lambda rng: self._links.isolate(rng, self._any(rng)),
            **self._links.timed,
            "slow disk": self._slow_disk,
            "stall disk": self._stall_disk,
            "full disk": self._full_disk,
            "failing sync": self._failing_sync,
            "wall clock": cluster.clocks.jump,
            "transfer": self.transfer,
            "lead again": self._lead_again,
            "away": self._away,
            "forget": self._forget,
            "reassign": self._reassign,
            "transfer by hand": self._transfer_by_hand,
        }
        self._aims: dict[str, Aim] = {
            "after a vote": Faults.dies,
            "after winning": Faults.isolate,
            "after a commit": Faults.dies,
            "after an acknowledgement": Faults.dies,
            "after a sync": Faults.dies,
            AFTER_A_METADATA_COMMIT: Faults.dies,
        }
        self._favourites: list[MoveReplicas] = []

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of faults that a run may draw, without the timed faults of scenarios."""
        return frozenset((*self._timed, *self._aims))

    def begin(self, aims: Mapping[str, Aim]) -> None:
        """Prepare the faults before the run: the faults of its scenarios, and ``aims`` for critical moments,
        by kind.
        """
        self._aims |= aims
        for part in self._cluster.parts:
            self._timed |= part.faults()
        wishes = self._cluster.rng("wishes")
        self._favourites = [self._wish(wishes), self._wish(wishes)]

    def replay(self) -> None:
        """Schedule the recorded faults at their times. Some of them are injected before ``run``."""
        for fault in self._cluster.schedule or ():
            self._cluster.loop.at(fault.at, self._cluster.loop.later, 0.0, self._strike, fault)

    async def run(self) -> None:
        """Inject faults until the time at which the run is healed."""
        while not self._cluster.is_healed and self._cluster.schedule is None:
            await asyncio.sleep(self._rng.expovariate(1 / self._odds.pause_s))
            await self._cluster.rest()
            if FORGET in self._odds.timed:
                self.lost_files.copy(self._rng)
            self._strike(self._next(self._rng.choice(self._odds.timed)))

    def _next(self, kind: str, machine: Machine | None = None) -> Fault:
        at = self._cluster.loop.now
        return Fault(len(self.happened), at, kind, 0 if machine is None else machine.node)

    def _strike(self, fault: Fault) -> None:
        """Inject one fault now."""
        machine = self._cluster.machines[fault.node - 1] if fault.node else None
        if self._cluster.is_healed or (machine is not None and not machine.is_up):
            return
        if machine is None and self._cluster.schedule is not None and fault.kind not in self._timed:
            return  # of a scenario that this smaller run lacks
        if not all(part.may_happen(fault.kind) for part in self._cluster.parts):
            return
        self.happened.append(fault)
        self.counts[fault.kind] += 1
        self._cluster.trace.note(None, f"fault {fault.number}: {fault.kind}")
        rng = fault.rng(self._cluster.seed)
        if machine is None:
            self._timed[fault.kind](rng)
        else:
            self._aims[fault.kind](self, rng, machine)

    def heal(self) -> None:
        """Inject no more faults, and heal all effects at once."""
        self._cluster.is_healed = True
        cluster = self._cluster
        cluster.trace.note(None, "everything is healed")
        cluster.network.is_calm = True
        cluster.network.heal()
        cluster.clocks.set_right()
        for machine in cluster.machines:
            self._repair_disk(machine)
            machine.disk.crash_after_changes = machine.disk.dies_writing = None
            machine.resume()
            machine.be_fast()
            if machine.is_restart_needed:
                machine.kill()
            if not machine.is_up and not machine.is_gone:
                machine.start()

    # The worst moments.

    def frame_left(self, sender: Machine, to: NodeId, frame: bytes) -> None:
        """Handle a Raft message that a broker is about to send.

        The moment of a vote or of an acknowledgement is critical: the machine may crash.
        """
        if len(frame) < 8:
            return
        tag = frame[7] if frame[6] < 0x80 else 0  # small group ids: the tag is the third byte of the head
        if tag == _VOTE:
            self.aim("after a vote", sender)
        elif tag == _APPEND_REPLY:
            self.aim("after an acknowledgement", sender, 0.1)

    def won(self, machine: Machine, group: GroupId, term: int) -> None:
        """Handle a new leader, which may be isolated."""
        self.aim("after winning", machine)

    def committed(self, machine: Machine, group: GroupId, commit: int) -> None:
        """Handle a group's commit index that has just changed on a machine: a critical moment."""
        if group == METADATA_GROUP:
            self.aim(AFTER_A_METADATA_COMMIT, machine)
        self.aim("after a commit", machine, 0.3)

    def synced(self, machine: Machine) -> None:
        """Handle a disk that has just stored entries that other replicas may lack."""
        self.aim("after a sync", machine, 0.1)

    def aim(self, kind: str, machine: Machine, thinned: float = 1.0) -> None:
        """Inject a fault of a kind into a machine at a critical moment, with the probability of the kind."""
        odds = self._odds.aimed.get(kind, 0.0) * thinned
        if (
            odds
            and not self._cluster.is_healed
            and self._cluster.schedule is None
            and self._aim_rng.random() < odds
        ):
            delay = self._aim_rng.choice((0.0, 0.0005, 0.003))
            self._cluster.loop.later(delay, lambda: self._strike(self._next(kind, machine)))

    def dies(self, rng: random.Random, machine: Machine) -> None:
        """Kill a machine, or cut its power, sometimes during a write."""
        manner = rng.choice(("kill", "lose power", "lose power writing"))
        if manner == "lose power writing":
            self._lose_power_writing(rng, machine)
        else:
            self._down(machine.kill if manner == "kill" else machine.lose_power)

    def isolate(self, rng: random.Random, machine: Machine) -> None:
        """Isolate a machine from all others for a while."""
        self._links.isolate(rng, machine)

    def leads_no_more(self, rng: random.Random, machine: Machine) -> None:
        """Take the leaderships of a machine away: transfer them, kill the machine, or refuse its appends."""
        rng.choice((self._transfer_from, self._links.isolate, self.dies, self._hinder))(rng, machine)

    def _hinder(self, rng: random.Random, machine: Machine) -> None:
        """Refuse the next appends of the machine's coordinators, or make these coordinators raise an
        unexpected error.
        """
        if rng.random() < 0.5:
            self._refuse_appends(rng, machine)
        else:
            plant_errors(rng, machine, lambda: self._cluster.is_healed)

    def _refuse_appends(self, rng: random.Random, machine: Machine) -> None:
        """Refuse the next appends of a coordinator, as a broker does when too many appends are in flight."""
        broker = machine.broker
        for (topic, _), replica in {} if broker is None else broker.manager.replicas.items():
            if topic.startswith("__"):
                _refuse(replica.group, rng.choice((1, 1, 2, 5)), lambda: self._cluster.is_healed)

    # The faults.

    def _any(self, rng: random.Random) -> Machine:
        machines = self._cluster.machines
        return rng.choice([machine for machine in machines if machine.is_up] or machines)

    def _leader(self, rng: random.Random) -> Machine:
        leading = [machine for machine in self._cluster.machines if self._leads(machine)]
        return rng.choice(leading) if leading else self._any(rng)

    @staticmethod
    def _leads(machine: Machine) -> bool:
        broker = machine.broker
        return broker is not None and any(group.is_leader for group in broker.host.groups.values())

    def _later(self, rng: random.Random, low: float, high: float, work: Callable[[], None]) -> None:
        self._cluster.loop.later(rng.uniform(low, high), self._unless_healed, work)

    def _unless_healed(self, work: Callable[[], None]) -> None:
        if not self._cluster.is_healed:
            work()

    def _down(self, dies: Callable[[], None]) -> None:
        dies()
        self.start_again()

    def start_again(self) -> None:
        """Start all stopped machines after a short time."""
        for machine in self._cluster.machines:
            if not machine.is_up and not machine.is_kept_off:
                delay = self._restart_rng.uniform(0.05, 2.0)
                self._cluster.loop.later(delay, _start_if_off, machine)

    def _lose_power(self, rng: random.Random) -> None:
        """Cut the power of a machine at once, or during a write, which the power loss may tear."""
        machine = self._any(rng)
        if rng.random() < 0.5:
            self._down(machine.lose_power)
        else:
            self._lose_power_writing(rng, machine)

    def _lose_power_writing(self, rng: random.Random, machine: Machine) -> None:
        if machine.is_up:
            machine.disk.dies_writing = rng.choice((".log", ".log", "hard_state"))
            self._later(rng, 0.5, 3.0, self.start_again)

    def _lose_power_in_a_change(self, rng: random.Random) -> None:
        machine = self._any(rng)
        if machine.is_up:
            machine.disk.crash_after_changes = rng.choice((0, 1, 2, 3, 5, 10, 30))
            self._later(rng, 0.5, 3.0, self.start_again)

    def _lose_all_power(self, rng: random.Random) -> None:
        for machine in self._cluster.machines:
            machine.lose_power()
        self.start_again()

    def _kill_all(self, rng: random.Random) -> None:
        for machine in self._cluster.machines:
            machine.kill()
        self.start_again()

    def _away(self, rng: random.Random) -> None:
        """Stop one machine until another fault starts all machines, or until all effects are healed."""
        if all(machine.is_up for machine in self._cluster.machines):
            self._any(rng).kill()

    def _forget(self, rng: random.Random) -> None:
        """Let a machine start without some of its files; sometimes the machines with newer logs are off at
        that time.
        """
        if rng.random() < 0.5 and all(machine.is_up for machine in self._cluster.machines):
            self.lost_files.strike_without_the_newest(rng, self._later)
        elif self.lost_files.strike(rng) is not None:
            self.start_again()

    def _pause(self, rng: random.Random) -> None:
        machine = self._any(rng)
        machine.pause()
        self._later(rng, 0.05, 3.0, machine.resume)

    def _depose(self, rng: random.Random) -> None:
        """Isolate a leader together with its clients for a while; when the leader is connected again, the
        next leader crashes.

        Sometimes the disk of the isolated leader is full; entries that it could not write are later replaced.
        """
        deposed = self._leader(rng)
        self._links.isolate(rng, deposed)
        if rng.random() < 0.3:
            self._fill(rng, deposed)
        self._later(rng, 0.5, 3.0, lambda: self._return_of(rng, deposed))

    def _return_of(self, rng: random.Random, deposed: Machine) -> None:
        replaced = [machine for machine in self._cluster.machines if machine is not deposed]
        leading = [machine for machine in replaced if self._leads(machine)] or replaced or [deposed]
        self._cluster.network.heal()
        self.dies(rng, rng.choice(leading))

    def _slow_disk(self, rng: random.Random) -> None:
        machine = self._any(rng)
        machine.syncs.slowness = rng.choice((5.0, 30.0))
        self._later(rng, 0.5, 4.0, lambda: self._repair_disk(machine))

    def _stall_disk(self, rng: random.Random) -> None:
        machine = self._any(rng)
        machine.syncs.stalled_until = self._cluster.loop.now + rng.uniform(0.2, 3.0)

    def _full_disk(self, rng: random.Random) -> None:
        self._fill(rng, self._leader(rng) if rng.random() < 0.5 else self._any(rng))

    def _fill(self, rng: random.Random, machine: Machine) -> None:
        machine.disk.capacity_bytes = machine.disk.used_bytes + rng.choice((0, 100, 2000))
        self._later(rng, 0.3, 3.0, lambda: self._repair_disk(machine))

    def _failing_sync(self, rng: random.Random) -> None:
        """Let the sync of one file fail. From then on page cache and disk differ for this file, without
        further errors.

        The file's replica is stopped until its broker restarts, whether or not the machine loses power.
        """
        machine = self._any(rng)
        struck: list[str] = []

        def fails(path: str) -> bool:
            if not path.endswith((".log", ".a", ".b")):
                return False
            if not struck:
                struck.append(path)
            machine.is_restart_needed = True
            return path == struck[0]

        machine.disk.fails_sync = fails
        self._later(rng, 0.3, 2.0, lambda: self._restart(rng, machine))

    def _restart(self, rng: random.Random, machine: Machine) -> None:
        self._repair_disk(machine)
        if machine.is_restart_needed:
            self._down(rng.choice((machine.kill, machine.lose_power)))

    def _repair_disk(self, machine: Machine) -> None:
        machine.syncs.slowness = 1.0
        machine.syncs.stalled_until = 0.0
        machine.disk.capacity_bytes = None
        machine.disk.fails_sync = lambda path: False

    def transfer(self, rng: random.Random) -> None:
        """Let a leader transfer the leadership of its group to another broker."""
        self._transfer_from(rng, self._leader(rng))

    def _transfer_from(self, rng: random.Random, machine: Machine) -> None:
        broker = machine.broker
        if broker is not None and machine.process is not None:
            led = [group for group in broker.host.groups.values() if group.is_leader]
            others = [other.node for other in self._cluster.machines if other is not machine]
            if led and others:
                group, to = rng.choice(led), rng.choice(others)
                self._cluster.loop.later_in(machine.process, 0.0, group.transfer_leadership, to)

    def _lead_again(self, rng: random.Random) -> None:
        """Depose a leader, and let it win a later election while its messages of the earlier term are in
        flight.
        """
        machine = self._leader(rng)
        self._links.slow_all(rng, machine)
        self._transfer_from(rng, machine)
        self._later(rng, 0.1, 2.0, lambda: self._campaign(machine))

    def _campaign(self, machine: Machine) -> None:
        broker = machine.broker
        if broker is not None and machine.process is not None:
            for group in broker.host.groups.values():
                self._cluster.loop.later_in(machine.process, 0.0, group.campaign)

    def _reassign(self, rng: random.Random) -> None:
        """Request other replicas for a partition in use; often the requests alternate between two sets of
        brokers.
        """
        wish = rng.choice(self._favourites) if rng.random() < 0.4 else self._wish(rng)
        forgetful = self.lost_files.forgetful
        replicas = wish.replicas or ()
        if forgetful is not None and forgetful.node in replicas and len(replicas) < 3:
            return  # with one of two disks lost, a majority is lost
        self._ask(rng, lambda broker: broker.admin.change_replicas(wish, TIMEOUT_MS))

    def _wish(self, rng: random.Random) -> MoveReplicas:
        nodes = [machine.node for machine in self._cluster.machines]
        count = min(len(nodes), rng.choice((1, 2, 3, 3, 3, 3, 5)))
        target = self._target(rng)
        return MoveReplicas(target.topic, target.partition, tuple(rng.sample(nodes, count)))

    def _target(self, rng: random.Random) -> TopicPartition:
        """Draw a partition that clients use, mostly of the scenario's topic."""
        topic, partitions = TOPIC, self._cluster.odds.partitions
        for part in self._cluster.parts:
            topic, partitions = part.target(rng) or (topic, partitions)
        return TopicPartition(topic, rng.randrange(partitions))

    def _transfer_by_hand(self, rng: random.Random) -> None:
        target = self._target(rng)
        to = rng.choice([None, *(machine.node for machine in self._cluster.machines)])
        self._ask(rng, lambda broker: broker.admin.transfer_leadership(target, to, TIMEOUT_MS))

    def _ask(self, rng: random.Random, ask: Callable[[Broker], Awaitable[object]]) -> None:
        """Send an operator's request to a random broker; a refusal of the request is no violation."""
        machine = self._any(rng)
        broker = machine.broker
        if broker is None or machine.process is None:
            return

        async def try_it() -> None:
            with contextlib.suppress(RaftlogError):
                await ask(broker)

        self._cluster.loop.start_in(machine.process, try_it())


def _refuse(group: RaftGroup[None], count: int, is_over: Callable[[], bool]) -> None:
    propose = group.propose

    def refused(batches: Sequence[Batch], **options: bool) -> Proposal[None]:
        nonlocal count
        count -= 1
        if count < 0 or is_over():
            return propose(batches, **options)
        raise Overloaded("too much is in flight; retry", retry_after_ms=100)

    group.propose = refused  # type: ignore[method-assign,assignment]


def _start_if_off(machine: Machine) -> None:
    if not machine.is_up and not machine.is_kept_off:
        machine.start()
