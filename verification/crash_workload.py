"""Runs the workload whose disk operations are the crash points, and the checks after a crash.

Decides: the operations of three brokers, and that one of them crashes after a given disk operation.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from broker.broker import Broker
from chaos.history import Outcome, Send
from partitions.metadata.move_planner import MoveReplicas
from partitions.values import QUORUM
from raftlog.errors import RaftlogError
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import GroupId, NodeId, TopicPartition
from transactions.records import TOPIC as TRANSACTIONS
from verification.simulator.clients import TOPIC, Client
from verification.simulator.convergence import Convergence
from verification.simulator.machine import Machine
from verification.simulator.odds import CALM, Odds
from verification.simulator.placement_checks import misplaced
from verification.simulator.scenarios.transactions.odds import LEDGER, TransactionOdds
from verification.simulator.scenarios.transactions.part import Transactions
from verification.simulator.scenarios.transactions.producers import WideProducer
from verification.simulator.simulation import Simulation

KILL, POWER_LOSS = "kill", "power loss"
FADING, PASSING, MOVING = "fading", "passing", "moving"
SEED: Final = 1
STEP_TIMEOUT_S: Final = 15.0

ODDS: Final = CALM.with_check_ms(200).having(TransactionOdds.calm())


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The disk operation after which the machine crashes, and the kind of crash."""

    operation: int
    manner: str


class Workload(Simulation):
    """One run of the workload, which ends at the crash of the counted machine. Then all brokers
    must recover.
    """

    def __init__(self, point: CrashPoint | None, *, odds: Odds = ODDS, keeps_lines: bool = False) -> None:
        super().__init__(SEED, odds, keeps_lines=keeps_lines)
        self.counted = self.machines[1]
        self.steps: list[tuple[str, int]] = []  # number of operations after each step
        self._point = point
        self._values = 0
        self._client = Client(self, "writer")
        transactions = self.part(Transactions)
        assert transactions is not None
        self._transactions = transactions
        self._producer = WideProducer(self, "wide", self._transactions.story, self.machines[0])
        self.checked = [TopicPartition(topic, 0) for topic in (TOPIC, FADING, MOVING)]
        if point is not None:
            self.counted.disk.dies_after = point.operation
            self.counted.is_killed_in_a_change = point.manner == KILL

    async def live(self) -> None:
        """Run the workload until the crash, or to its end if no crash happens; then check the recovery."""
        for machine in self.machines:
            machine.start()
        work = asyncio.get_running_loop().create_task(self._work())
        await self._until(lambda: work.done() or self._has_crashed, 20 * STEP_TIMEOUT_S)
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        if self._point is not None:
            if not self._has_crashed:
                self.counted.disk.dies_after = None
                (self.counted.kill if self._point.manner == KILL else self.counted.lose_power)()
            await asyncio.sleep(0.5)
        self.faults.heal()
        await self.make_topic(TOPIC, 1, 3)
        await self.make_topic(FADING, 1, 3, retention_bytes=2000)
        await self.make_topic(MOVING, 1, 1)
        await self._make_transactional()
        convergence = Convergence(self)
        await convergence.reached()
        await self._transactions.actors_ended()
        await convergence.settled()
        await convergence.read_everything()
        await self._transactions.check()

    @property
    def _has_crashed(self) -> bool:
        return self._point is not None and self.counted.disk.dies_after is None

    # Steps of the workload.

    async def _work(self) -> None:
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self._create,
            self._fill_segments,
            self._lead,
            self._cut_a_divergent_tail,
            self._lose_the_prefix,
            self._create_and_delete,
            self._transact,
            self._coordinate,
            self._stop_and_start,
            self._fall_behind_the_log_start,
            self._leave_and_return_behind_the_log_start,
            self._join,
            self._lead_a_change,
            self._leave,
            self._return,
        )
        for step in steps:
            await step()
            self.steps.append((step.__name__.strip("_"), self.counted.disk.changes))

    async def _create(self) -> None:
        await self._until(lambda: all(machine.broker is not None for machine in self.machines))
        await self.make_topic(TOPIC, 1, 3)
        await self.make_topic(FADING, 1, 3, retention_bytes=2000)
        await self.make_topic(MOVING, 1, 1)

    async def _fill_segments(self) -> None:
        """Send enough records for several segments, in batches of one record and of many."""
        for number in range(12):
            await self._send(TOPIC, count=1 + number % 3)

    async def _lead(self, topic: str = TOPIC) -> None:
        """Make the counted machine leader."""
        group_id = self._group(topic)

        def leads(machine: Machine) -> bool:
            broker = machine.broker
            return (
                broker is not None
                and group_id in broker.host.groups
                and broker.host.groups[group_id].is_leader
            )

        while not leads(self.counted):
            for machine in self.machines:
                if leads(machine) and machine.broker is not None and machine.process is not None:
                    group = machine.broker.host.groups[group_id]
                    self.loop.later_in(machine.process, 0.0, group.transfer_leadership, self.counted.node)
            await asyncio.sleep(0.2)

    async def _cut_a_divergent_tail(self) -> None:
        """Isolate the machine, let it accept records that no other replica gets, and connect it again."""
        others = [machine for machine in self.machines if machine is not self.counted]
        directions = [(self.counted.node, other.node) for other in others]
        self.network.block(directions + [(to, sender) for sender, to in directions], holds=False)
        for _ in range(5):
            await self._send(TOPIC, to=self.counted, count=2, timeout_ms=100)
        for _ in range(3):
            await self._send(TOPIC, to=others[0])
        self.network.heal()
        await self._until(self._is_level)

    async def _lose_the_prefix(self) -> None:
        for _ in range(14):
            await self._send(FADING)
        await asyncio.sleep(1.0)

    async def _create_and_delete(self) -> None:
        await self.make_topic(PASSING, 1, 3)
        await self._send(PASSING)
        await self._ask(self._delete)
        await asyncio.sleep(0.5)

    async def _transact(self) -> None:
        """Commit a transaction over two partitions, and abort a second transaction."""
        await self._make_transactional()
        for is_commit in (True, False):
            while await self._producer.transact(is_commit=is_commit) is None:
                await self._producer.pause()

    async def _coordinate(self) -> None:
        """Make the machine leader of the coordinator's group and of one of two partitions; let one
        transaction time out.
        """
        await self._lead(TRANSACTIONS)
        await self._lead(LEDGER)
        await self._transact()
        while not await self._producer.leave_open(timeout_ms=300):
            await self._producer.pause()
        await asyncio.sleep(0.6)

    async def _stop_and_start(self) -> None:
        """Stop the machine cleanly: the log is closed with a checkpoint."""
        self.counted.stop()
        await self._until(lambda: not self.counted.is_up)
        for _ in range(2):
            await self._send(TOPIC, to=self.machines[0])
        await self._start_again()

    async def _fall_behind_the_log_start(self) -> None:
        """Keep the machine stopped until the other replicas have deleted the beginnings of their logs."""
        self.counted.kill()
        for _ in range(14):
            await self._send(FADING, to=self.machines[0])
        await asyncio.sleep(2.0)
        await self._start_again()
        await self._until(self._is_level)

    async def _leave_and_return_behind_the_log_start(self) -> None:
        """Remove the replica of the machine, and add it again by a snapshot."""
        await self._move(FADING, 1, 3)
        for _ in range(6):
            await self._send(FADING)
        await self._move(FADING, 1, 2, 3)

    async def _join(self) -> None:
        """Add a replica on the machine, which receives the log and becomes a voter in place of another
        replica.
        """
        await self._move(MOVING, 1, 3)
        for _ in range(3):
            await self._send(MOVING, count=3)
        await self._move(MOVING, 1, 2)

    async def _lead_a_change(self) -> None:
        """Let the machine lead a membership change."""
        await self._lead(MOVING)
        await self._send(MOVING)
        await self._move(MOVING, 2, 3)

    async def _leave(self) -> None:
        """Make the machine leader of the group from which its own replica is removed."""
        await self._send(MOVING)
        await self._move(MOVING, 1, 3)
        await self._send(MOVING)

    async def _return(self) -> None:
        await self._move(MOVING, 1, 2, 3)
        await self._send(MOVING)

    # Helpers of the steps.

    async def _make_transactional(self) -> None:
        await self.make_topics_of(self._transactions, {})

    async def _move(self, topic: str, *nodes: int) -> None:
        """Move the replicas of a topic to these brokers; return once no other broker has a replica."""
        wish = MoveReplicas(topic, 0, tuple(NodeId(node) for node in nodes))
        await self._ask(lambda broker: broker.admin.change_replicas(wish, 1500))
        await self._until(lambda: all(self._has_moved(machine, wish) for machine in self.machines))
        await self._until(self._is_level)

    @staticmethod
    def _has_moved(machine: Machine, wish: MoveReplicas) -> bool:
        if machine.broker is None:
            return False
        partition = machine.broker.controller.image.topics[wish.name].partitions[0]
        is_done = set(partition.replicas) == set(wish.replicas or ()) and not partition.target
        return is_done and not misplaced(machine)

    async def _start_again(self) -> None:
        if not self.counted.is_up:
            self.counted.start()
        await self._until(lambda: self.counted.broker is not None)

    async def _until(self, holds: Callable[[], bool], timeout_s: float = STEP_TIMEOUT_S) -> None:
        deadline = self.loop.now + timeout_s
        while self.loop.now < deadline:
            if holds():
                return
            await asyncio.sleep(0.02)
        if not self._has_crashed:
            self.violated(
                "L2 a healed cluster works", f"the workload made no progress in time after {self.steps}"
            )

    def _is_level(self) -> bool:
        """Return whether all logs of each group end at the group's committed index."""
        ends: dict[GroupId, set[int]] = {}
        for machine in self.machines:
            for group_id, group in ({} if machine.broker is None else machine.broker.host.groups).items():
                ends.setdefault(group_id, set()).update((group.last_index, group.commit_index))
        return all(len(found) == 1 for found in ends.values())

    def _group(self, topic: str) -> GroupId:
        for machine in self.machines:
            if machine.broker is not None and topic in machine.broker.controller.image.topics:
                return machine.broker.controller.image.topics[topic].partitions[0].group_id
        raise KeyError(topic)

    async def _send(
        self, topic: str, *, to: Machine | None = None, count: int = 1, timeout_ms: int = 1500
    ) -> None:
        """Send one batch, and retry until it is acknowledged. Give up if only the crashed machine could
        acknowledge it.
        """
        first = self._values + 1
        self._values += count
        values = [f"{topic}-{number}" for number in range(first, first + count)]
        records = [Record(value=value.encode(), key=bytes(100)) for value in values]
        data = build_batch(records, codec=Codec.NONE, timestamp_ms=0)
        target = TopicPartition(topic, 0)
        invoked = self.loop.now
        outcome, offset = Outcome.UNKNOWN, -1
        try:
            while outcome is Outcome.UNKNOWN:
                try:
                    receipt = await self._client.ask(
                        to or self.machines[0],
                        lambda broker: broker.gateway.append(
                            target, data, acks=QUORUM, timeout_ms=timeout_ms
                        ),
                    )
                    outcome, offset = Outcome.ACKNOWLEDGED, receipt.base_offset
                except RaftlogError as error:
                    if not error.is_definite or to is self.counted:
                        break
                    await asyncio.sleep(0.1)
        finally:  # also if the machine crashes during the send
            if target in self.checked:
                self._note(self.checked.index(target), values, invoked, outcome, offset)

    def _note(self, number: int, values: list[str], invoked: float, outcome: Outcome, offset: int) -> None:
        for place, value in enumerate(values):
            send = Send(
                process=self.next_process(),
                partition=number,
                value=value,
                invoked_s=invoked,
                completed_s=self.loop.now,
                outcome=outcome,
                offset=None if outcome is not Outcome.ACKNOWLEDGED else offset + place,
            )
            self.history.sends.append(send)

    async def _ask(self, work: Callable[[Broker], Awaitable[object]]) -> None:
        while True:
            try:
                await self._client.ask(self.machines[0], work)
            except RaftlogError:
                await asyncio.sleep(0.1)
                continue
            return

    @staticmethod
    async def _delete(broker: Broker) -> None:
        await broker.controller.delete_topic(PASSING, expected_version=None, timeout_ms=1500)
