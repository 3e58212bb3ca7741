"""Checks, after all faults are healed, that every transaction ends, and that readers get all records of
acknowledged commits once (T8, T9).

Decides: the deadlines, and which records the final reads must return. Leaves to others: the replicas' bytes
(``verification.simulator.convergence``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from raftlog.errors import RaftlogError
from transactions.batches import partition_of
from transactions.records import TOPIC, Participant, State
from verification.simulator.scenarios.transactions.clients import Story, Write
from verification.simulator.scenarios.transactions.judge import ANSWERED
from verification.simulator.scenarios.transactions.producers import WideProducer
from verification.simulator.scenarios.transactions.readers import TransactionReader
from verification.simulator.simulated_cluster import SimulatedCluster

ENDS: Final = "T8 no transaction hangs"
COMPLETE: Final = "T9 a committed transaction is seen whole and once, an aborted one never"
WORKS: Final = "L2 a healed cluster works"
RECOVERY_S: Final = 20.0


class Ending:
    """The checks of transactions in the last phases of a run."""

    def __init__(self, cluster: SimulatedCluster, story: Story) -> None:
        self._cluster = cluster
        self._story = story
        self._judge = story.judge

    async def works(self) -> None:
        """Check that through each broker a new transactional id soon commits a transaction over all
        partitions (L2).
        """
        for machine in self._cluster.machines:
            probe = WideProducer(self._cluster, f"probe-{machine.node}", self._story, machine)
            deadline = self._cluster.loop.now + RECOVERY_S
            while await probe.transact(is_commit=True) is not True:
                if self._cluster.loop.now > deadline:
                    self._cluster.violated(WORKS, f"{machine.name} commits no transaction")
                    return
                await probe.pause()

    async def settled(self) -> None:
        """Check that transactions which clients left open are aborted everywhere after their timeout (T8)."""
        odds = self._story.odds
        limit_s = (max(odds.timeout_ms, odds.prepared_ms)) / 1000 * 1.5 + RECOVERY_S
        deadline = self._cluster.loop.now + limit_s
        while (problem := self._open()) is not None:
            if self._cluster.loop.now > deadline:
                self._cluster.violated(ENDS, problem)
                return
            await asyncio.sleep(0.25)
            self._judge.look()

    def _open(self) -> str | None:
        judge = self._judge
        for name, found in judge.decided.state.transactions.items():
            if found.state not in (State.EMPTY, State.COMPLETE):
                return f"{name} is still {found}"
        for target, log in judge.logs.items():
            if log.last_stable_offset < log.end:
                return f"{target} ends at {log.end}, and is stable up to {log.last_stable_offset}"
        return None

    async def check(self) -> None:
        """Check the final reads of all partitions, and the replicas."""
        judge = self._judge
        judge.look()
        if judge.waiting:
            self._cluster.violated(ANSWERED, f"{len(judge.waiting)} answers are of what no log shows")
        for target in self._story.targets:
            for machine in self._cluster.machines:
                judge.check_replica(machine, target)
            await self._read(target)
        self._check_coordinators()

    async def _read(self, target: Participant) -> None:
        name = f"final reader of {target}"
        reader = TransactionReader(self._cluster, name, self._story, target, committed=True)
        try:
            start, seen, last = await reader.everything()
        except RaftlogError as error:
            self._cluster.violated(WORKS, f"{target} is not read: {error!r}")
            return
        if last.last_stable_offset != last.high_watermark:
            detail = f"{target}: {last.last_stable_offset} of {last.high_watermark} is stable at the end"
            self._cluster.violated(ENDS, detail)
        outcomes = self._judge.decided.outcomes
        for handle, writes in self._story.writes.items():
            for write in writes:
                if write.target == target:
                    self._check(target, str(handle), outcomes.get(handle, False), write, start, seen)
        for write in self._story.plain:
            if write.target == target:
                self._check(target, "no transaction", True, write, start, seen)

    def _check(
        self,
        target: Participant,
        whose: str,
        is_visible: bool,
        write: Write,
        start: int,
        seen: dict[str, int],
    ) -> None:
        shown = [value for value in write.values if value in seen]
        if write.offset is not None and write.offset < start:
            return  # retention has deleted it
        is_whole = len(shown) == len(write.values)
        if shown and (write.is_refused or not (is_visible and is_whole)):
            self._cluster.violated(COMPLETE, f"{target} shows {shown} of {write}, {whose}: {is_visible}")
        elif is_visible and write.offset is not None and not is_whole:
            self._cluster.violated(COMPLETE, f"{target} lacks {write} of {whose}")

    def _check_coordinators(self) -> None:
        """Check that every replica of ``__transactions`` has the committed transactions."""
        expected = self._judge.decided.state
        count = self._story.odds.coordinators
        for machine in self._cluster.machines:
            for number in range(count):
                record = self._judge.records.get((TOPIC, number))
                if machine.broker is None or record is None:
                    continue
                if machine.node not in record.membership.members:
                    continue
                found = machine.broker.transactions.coordinators[number].state
                due = {
                    name: each
                    for name, each in expected.transactions.items()
                    if partition_of(name, count) == number
                }
                if found.transactions != due:
                    detail = f"{machine.name} has {found.transactions}; committed are {due}"
                    self._cluster.violated(ANSWERED, detail)
