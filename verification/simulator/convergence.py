"""Checks the end of a run: after all faults are healed, the cluster must work, all replicas must agree, and
no acknowledged record may be lost.

Decides: the deadlines, and what is compared: the replicas' bytes on the disks with one another, and each
producer table with its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.broker import Broker
from chaos.history import Outcome, Send
from partitions.metadata.machine import encode_image
from raftlog.errors import OffsetOutOfRange, RaftlogError
from raftlog.records.batch import BatchHeader, Codec
from raftlog.records.builder import Record, build_batch
from raftlog.types import GroupId
from raftlog.wire.limits import PRODUCER_BATCHES_MAX
from verification.simulator.clients import Client
from verification.simulator.leak_checks import leaks
from verification.simulator.machine import Machine
from verification.simulator.placement_checks import misplaced
from verification.simulator.records import GroupRecord
from verification.simulator.simulated_cluster import SimulatedCluster

RECOVERY_S: Final = 20.0  # until every partition accepts records again
LATE_S: Final = 2.5  # all attempts that clients have given up are over by then
SETTLING_S: Final = 20.0  # until all replicas are equal


class Convergence:
    """The last phases of a run, which begin when all faults are healed."""

    def __init__(self, cluster: SimulatedCluster, name: str = "finisher") -> None:
        self._cluster = cluster
        self._name = name
        self._client = Client(cluster, name)
        self._values = 0
        self._refused: RaftlogError | None = None

    async def reached(self, machines: Sequence[Machine] = (), within_s: float = RECOVERY_S) -> None:
        """Check that every partition accepts a record through each of these brokers, by default through each
        member of the cluster (L2).
        """
        cluster = self._cluster
        deadline = cluster.loop.now + within_s
        for machine in machines or cluster.members:
            for partition in range(len(cluster.checked)):
                while not machine.is_removed and not await self._append(machine, partition):
                    if cluster.loop.now > deadline:
                        detail = f"{machine.name} accepts no record for partition {partition} in {within_s} s"
                        cluster.violated("L2 a healed cluster works", f"{detail}: {self._refused!r}")
                        return
                    await asyncio.sleep(0.1)

    async def _append(self, machine: Machine, partition: int) -> bool:
        cluster = self._cluster
        self._values += 1
        value = f"{self._name}-{self._values}"
        data = build_batch([Record(value=value.encode())], codec=Codec.NONE, timestamp_ms=0)
        target = cluster.checked[partition]
        invoked = cluster.loop.now
        offset: int | None = None
        outcome = Outcome.ACKNOWLEDGED
        try:
            offset = (await self._client.append(machine, target, data)).base_offset
        except RaftlogError as error:
            self._refused = error
            outcome = Outcome.FAILED if error.is_definite else Outcome.UNKNOWN
        send = Send(
            process=cluster.next_process(),
            partition=partition,
            value=value,
            invoked_s=invoked,
            completed_s=cluster.loop.now,
            outcome=outcome,
            offset=offset,
        )
        cluster.history.sends.append(send)
        return offset is not None

    async def settled(self) -> None:
        """Check that all replicas become equal, and that all brokers show equal metadata (L3)."""
        await asyncio.sleep(LATE_S)
        await self._agreed()

    async def _agreed(self) -> None:
        """Return whether all replicas are equal at this moment: the answer may change at the loop's next
        turn.
        """
        cluster = self._cluster
        deadline = cluster.loop.now + SETTLING_S
        problems, held = self._problems(), self._held()
        while (problems or held) and cluster.loop.now < deadline:
            await asyncio.sleep(0.25)
            problems, held = self._problems(), self._held()
        for what in problems:
            cluster.violated("L3 replicas agree in the end", what)
        for what in held:
            cluster.violated("L6 no leaks", what)

    async def read_everything(self) -> None:
        """Read all partitions for the last time, and check the content of the disks."""
        for partition in range(len(self._cluster.checked)):
            await self._read(partition)
        await self._agreed()  # retention may have moved a log start during the reads
        records = self._cluster.checker.groups
        for machine in self._cluster.members:
            for topic in () if machine.broker is None else machine.broker.controller.image.topics.values():
                gone = [part.group_id for part in topic.partitions if records[part.group_id].is_retired]
                if gone:
                    detail = f"{machine.name}: groups {gone} of topic {topic.name} were closed or removed"
                    self._cluster.violated("I15 nothing else is deleted", detail)
        for record in records.values():
            if not record.is_retired:
                self._check_disks(record)
        self._check_tables()
        self._cluster.log_starts.check_all()
        self._cluster.incarnations.check_recoveries()

    async def _read(self, partition: int) -> None:
        cluster = self._cluster
        position, failures = 0, 0
        while True:
            try:
                poll, following = await self._client.poll(partition, position, wait_ms=0)
            except OffsetOutOfRange as error:
                cluster.history.final.append(self._client.deleted(partition, position, error))
                position = cluster.history.final[-1].log_start
                continue
            except RaftlogError as error:
                failures += 1
                if failures > 20:
                    cluster.violated(
                        "L2 a healed cluster works", f"partition {partition} is not read: {error}"
                    )
                    return
                await self._client.pause()
                continue
            if following == position:
                return
            position = following
            cluster.history.final.append(poll)

    def _held(self) -> list[str]:
        return [
            what for machine in self._cluster.members for what in leaks(machine, self._cluster.held(machine))
        ]

    # Comparisons.

    def _problems(self) -> list[str]:
        found = []
        cluster = self._cluster
        images = {}
        for machine in cluster.members:
            if machine.broker is None:
                found.append(f"{machine.name} does not run")
                continue
            images[machine.name] = encode_image(machine.broker.controller.image)
            failures = machine.broker.manager.failures
            if failures:
                found.append(f"{machine.name}: {failures}")
            found += _moves(machine.broker) + misplaced(machine) + _members(machine.broker)
        if len(set(images.values())) > 1:
            found.append(f"metadata differs: {images}")
        for record in cluster.checker.groups.values():
            if not record.is_retired:
                found += self._differences(record)
        return found

    def _differences(self, record: GroupRecord) -> list[str]:
        found = {}
        for node, replica in record.replicas.items():
            if replica.machine.is_removed:
                continue
            broker = replica.machine.broker
            group = None if broker is None else broker.host.groups.get(record.group_id)
            if group is None:
                found[node] = "is not open"
                continue
            # A follower may keep a tail that its leader lacks until the leader's next append truncates it.
            numbers = (group.commit_index, group.applied_index)
            found[node] = f"{numbers} {None if group.stopped is None else repr(group.stopped)}"
            ends = (group.last_index, group.durable_index) if group.is_leader else ()
            if len({*numbers, *ends}) != 1 or group.durable_index < group.commit_index:
                found[node] += f" is not done, {ends}"
        return [f"group {record.group_id}: {found}"] if len(set(found.values())) > 1 else []

    def _check_disks(self, record: GroupRecord) -> None:
        """Check that every replica holds the committed bytes, and no other bytes (I6)."""
        for replica in record.replicas.values():
            for durable in () if replica.machine.is_removed else (False, True):
                held = replica.look(record, durable=durable)
                view = replica.durable if durable else replica.seen
                if held < len(record.committed):
                    detail = f"group {record.group_id} on {replica.machine.name}, durable={durable}"
                    counts = f"{held} of {len(record.committed)} entries, {view.last} is its last"
                    self._cluster.violated("I6 all replicas hold all entries entries", f"{detail}: {counts}")
                replica.check_records(record, durable=durable)

    def _check_tables(self) -> None:
        """Check that each producer table agrees with the log, which is parsed without production
        code (I10).
        """
        for machine in self._cluster.machines:
            if machine.broker is None:
                continue
            for key, replica in machine.broker.manager.replicas.items():
                record = self._cluster.checker.replicas[machine.node].get(GroupId(replica.group.group_id))
                if record is None:
                    continue  # already reported: its group counts as deleted
                headers = [
                    header for header in record.headers() if header.last_offset <= replica.group.applied_index
                ]
                gap = _break_in_sequences(headers)
                if gap is not None:
                    self._cluster.violated("I25 sequences without break", f"{machine.name} {key}: {gap}")
                expected = _table_of(headers)
                table = replica.machine.producers
                start = record.seen.start  # of earlier batches only the table has data
                found = {
                    producer_id: (state.epoch, window)
                    for producer_id in table
                    if (state := table.get(producer_id))
                    and (window := [tuple(batch) for batch in state.window if batch.base_offset >= start])
                }
                if found != expected:
                    detail = f"{machine.name} {key}: {found}, and the log says {expected}"
                    self._cluster.violated("I10 producer table", detail)


def _members(broker: Broker) -> list[str]:
    """Members of the metadata group that the active controller still has to add, promote or remove."""
    voters, members = broker.controller.wanted_voters(), broker.controller.members
    brokers = frozenset(broker.controller.image.brokers)
    if voters is None or (members.voters, members.learners) == (voters, brokers - voters):
        return []
    return [
        f"the metadata group has {members}, and shall have the voters {sorted(voters)} of {sorted(brokers)}"
    ]


def _moves(broker: Broker) -> list[str]:
    """Replicas that are still moving from one broker to another."""
    return [
        f"broker {broker.node_id}: {topic.name}/{partition.partition} moves to {partition.target}"
        for topic in broker.controller.image.topics.values()
        for partition in topic.partitions
        if partition.target
    ]


def _break_in_sequences(headers: list[BatchHeader]) -> str | None:
    """Return the first batch that does not follow its producer's previous batch: a gap, a repetition, or an
    old epoch (I25).

    The control batch that ends a transaction begins the producer's next epoch.
    """
    newest: dict[int, tuple[int, int]] = {}  # epoch and last sequence
    for header in headers:
        if header.producer_id < 0:
            continue
        if not header.is_sequenced:
            epoch, last = newest.get(header.producer_id, (header.producer_epoch, -1))
            if header.producer_epoch < epoch:
                return f"{header} comes in epoch {epoch}"
            if header.is_control:
                newest[header.producer_id] = header.producer_epoch + 1, -1
            continue
        epoch, last = newest.get(header.producer_id, (header.producer_epoch, header.base_sequence - 1))
        if header.producer_epoch > epoch:
            epoch, last = header.producer_epoch, -1
        if (header.producer_epoch, header.base_sequence) != (epoch, last + 1):
            return f"{header} follows sequence {last} of epoch {epoch}"
        newest[header.producer_id] = (epoch, header.base_sequence + header.last_offset_delta)
    return None


def _table_of(headers: list[BatchHeader]) -> dict[int, tuple[int, list[tuple[int, ...]]]]:
    """Build a producer table from batch headers: for each producer id, its epoch and last batches."""
    table: dict[int, tuple[int, list[tuple[int, ...]]]] = {}
    for header in headers:
        if header.producer_id < 0 or not (header.is_sequenced or header.is_control):
            continue
        if header.is_control:
            fence = header.producer_epoch + 1
            if table.get(header.producer_id, (-1, []))[0] < fence:
                table[header.producer_id] = fence, []
            continue
        last = header.base_sequence + header.last_offset_delta
        row = (
            header.base_sequence,
            last,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.leader_epoch,
        )
        epoch, rows = table.get(header.producer_id, (header.producer_epoch, []))
        if epoch != header.producer_epoch:
            rows = []
        table[header.producer_id] = (header.producer_epoch, [*rows, row][-PRODUCER_BATCHES_MAX:])
    return {producer_id: found for producer_id, found in table.items() if found[1]}
