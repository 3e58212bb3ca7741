"""Runs administrators who create, delete, move, alter and recover shared topics, each through any broker.

Decides: the requests of administrators, and the rules for topic names that several of them use: a topic
exists until an administrator deletes it, does not reappear after its deletion, and has no record of another
topic with its name.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from broker.broker import Broker
from partitions.metadata.image import PartitionInfo, TopicInfo
from partitions.metadata.move_planner import MoveReplicas
from partitions.values import QUORUM, FetchRequest
from raftlog.errors import Conflict, RaftlogError, TopicNotFound
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition
from verification.simulator.clients import PATIENCE_S, TIMEOUT_MS, Client
from verification.simulator.faults import Faults
from verification.simulator.machine import Machine
from verification.simulator.odds import FORGET
from verification.simulator.simulated_cluster import SimulatedCluster

NAMES: Final = ("shared-0", "shared-1")
LOST_ANSWER_ODDS: Final = 0.15
RECOVERY_S: Final = 12.0
ACTIONS: Final = {"create": 5, "delete": 2, "alter": 1, "move": 4, "use": 5, "recover": 3}
"""Weights with which an administrator draws its next action."""


@dataclass(slots=True)
class SharedNames:
    """Knowledge about topic names that all administrators of a run share."""

    made: dict[str, tuple[str, float]] = field(default_factory=dict)  # by id: name, time of the request
    deletions: dict[str, list[float]] = field(default_factory=dict)  # by name: times of the requests
    gone: set[str] = field(default_factory=set)  # ids of definitely deleted topics
    written: dict[str, str] = field(default_factory=dict)  # value to the id of the topic to which it was sent
    values: int = 0
    recovering: set[str] = field(
        default_factory=set
    )  # names that are not deleted or moved during their recovery


class Administrator(Client):
    """One administrator, who continues after a refusal and after a request whose outcome is unknown."""

    lost_answer_odds = LOST_ANSWER_ODDS

    def __init__(self, cluster: SimulatedCluster, name: str, shared: SharedNames, faults: Faults) -> None:
        super().__init__(cluster, name)
        self._faults = faults
        self._shared = shared
        self._actions = {
            "create": self._create,
            "delete": self._delete,
            "alter": self._alter,
            "move": self._move,
            "use": self._use,
            "recover": self._recover,
        }

    def machine(self) -> Machine:
        """Return any broker, preferably a running one."""
        machines = self.cluster.machines
        return self.rng.choice([machine for machine in machines if machine.is_up] or machines)

    async def run(self) -> None:
        """Perform actions one after another, until the run ends."""
        while self.cluster.is_producing:
            kind = self.rng.choices(list(ACTIONS), list(ACTIONS.values()))[0]
            name = self.rng.choice(NAMES)
            if name not in self._shared.recovering or kind in ("create", "use"):
                with contextlib.suppress(RaftlogError):
                    await self._actions[kind](name)
            await asyncio.sleep(0.3 * self.rng.random())

    async def _create(self, name: str) -> None:
        factors = (3,) if FORGET in self.cluster.odds.timed else (1, 3, 3)  # the only replica may be lost
        began, factor = self.cluster.loop.now, self.rng.choice(factors)
        topic = await self.ask(
            self.machine(),
            lambda broker: broker.controller.create_topic(
                name, partitions=1, replication_factor=factor, config={}, timeout_ms=TIMEOUT_MS
            ),
            lambda broker, made: self.cluster.responses.changed(broker, made.version),
        )
        self._shared.made[topic.topic_id] = (name, began)

    async def _delete(self, name: str) -> None:
        self._shared.deletions.setdefault(name, []).append(self.cluster.loop.now)
        topic = await self.ask(self.machine(), lambda broker: self._look(broker, name))
        is_sure = self.rng.random() < 0.5  # whether the deletion names the version
        if topic is not None:
            version = topic.version if is_sure else None
            await self.ask(
                self.machine(),
                lambda broker: broker.controller.delete_topic(
                    name, expected_version=version, timeout_ms=TIMEOUT_MS
                ),
                self.cluster.responses.changed,
            )
            if is_sure:
                self._shared.gone.add(topic.topic_id)

    async def _alter(self, name: str) -> None:
        changes: dict[str, int | str | None] = {"retention.ms": self.rng.choice((None, 1 << 40, 1 << 41))}
        await self.ask(
            self.machine(),
            lambda broker: broker.controller.alter_config(
                name, changes, expected_version=None, timeout_ms=TIMEOUT_MS
            ),
        )

    async def _move(self, name: str) -> None:
        nodes = [machine.node for machine in self.cluster.machines]
        wish = self.rng.choice(
            (
                MoveReplicas(name, 0, tuple(self.rng.sample(nodes, self.rng.choice((1, 2, 3, 3))))),
                MoveReplicas(name, 0, add=self.rng.choice(nodes)),
                MoveReplicas(name, 0, remove=self.rng.choice(nodes)),
            )
        )
        await self.ask(self.machine(), lambda broker: broker.admin.change_replicas(wish, TIMEOUT_MS))

    async def _use(self, name: str) -> None:
        """Write to the topic of this name, and read the topic: no record of a deleted topic with this name
        may appear.
        """
        self._shared.values += 1
        value = f"shared-{self._shared.values}"
        data = build_batch([Record(value=value.encode())], codec=Codec.NONE, timestamp_ms=0)
        target = TopicPartition(name, 0)

        async def use(broker: Broker) -> None:
            topic = await self._look(broker, name)
            if topic is not None:
                receipt = await broker.gateway.append(target, data, acks=QUORUM, timeout_ms=TIMEOUT_MS)
                if self._is_still(broker, topic):
                    self._shared.written[value] = topic.topic_id
                    self.cluster.responses.appended(target, data, QUORUM, broker, receipt)

        with contextlib.suppress(RaftlogError):
            await self.ask(self.machine(), use)
        await self.ask(self.machine(), lambda broker: self._read(broker, target))

    async def _read(self, broker: Broker, target: TopicPartition) -> None:
        topic, position = await self._look(broker, target.topic), Offset(0)
        while topic is not None:
            result = await broker.gateway.fetch(target, FetchRequest(position=position))
            if not self._is_still(broker, topic):
                return
            self.cluster.responses.read(target, broker, result)
            for batch in split_batches(result.data):
                for record in () if batch.header.is_control else read_records(batch):
                    sent_to = self._shared.written.get((record.value or b"").decode(), topic.topic_id)
                    if sent_to != topic.topic_id:
                        detail = f"{record.value!r} was sent to {sent_to} and is in {topic.topic_id}"
                        self.cluster.violated("I15 deleted records stay deleted", detail)
            if result.next_offset >= result.high_watermark or result.next_offset == position:
                return
            position = result.next_offset

    async def _look(self, broker: Broker, name: str) -> TopicInfo | None:
        """Return the topic in confirmed metadata, after a comparison with the requests of administrators."""
        asked_at, shared = self.cluster.loop.now, self._shared
        made = {topic_id for topic_id, (known, _) in shared.made.items() if known == name}
        gone = set(shared.gone)
        image = await broker.controller.current_image(TIMEOUT_MS)
        topic = image.topics.get(name)
        found = "" if topic is None else topic.topic_id
        if found in gone:
            detail = f"{name}: {found} was deleted; broker {broker.node_id} has it at {asked_at:.3f}"
            self.cluster.violated("I15 deleted topics stay deleted", detail)
        for topic_id in made - {found}:
            _, began = shared.made[topic_id]
            if not any(asked >= began - PATIENCE_S for asked in shared.deletions.get(name, ())):
                detail = f"{name} was made as {topic_id}; broker {broker.node_id} has {found!r}"
                self.cluster.violated("I15 nothing else is deleted", detail)
        return topic

    @staticmethod
    def _is_still(broker: Broker, topic: TopicInfo) -> bool:
        """True if this broker has seen no other topic with this name, and no unsafe recovery, since ``topic``
        was read.
        """
        now = broker.controller.image.topics.get(topic.name)
        return now is not None and _identity(now) == _identity(topic)

    # Unsafe recovery.

    async def _recover(self, name: str) -> None:
        """Switch off a majority of the replicas, so that they seem lost, and recover the topic; the machines
        return later.
        """
        topic = await self.ask(self.machine(), lambda broker: self._look(broker, name))
        machines = self.cluster.machines
        if (
            not self.cluster.odds.recovers
            or topic is None
            or any(machine.is_kept_off for machine in machines)
        ):
            return
        replicas = topic.partitions[0].replicas
        lost = [machines[node - 1] for node in self.rng.sample(replicas, (len(replicas) + 1) // 2)]
        is_possible = len(lost) < len(replicas) and 2 * (len(machines) - len(lost)) > len(machines)
        if self.cluster.is_healed or not is_possible:
            return  # no replica would be left to recover from, or no majority of the metadata group
        for machine in lost:
            machine.is_kept_off = True
            machine.kill()
        self._shared.recovering.add(name)
        await self._until_recovered(name, lost)
        self._shared.recovering.discard(name)
        for machine in lost:
            if not machine.is_up:
                machine.start()

    async def _until_recovered(self, name: str, lost: list[Machine]) -> None:
        phrase: str | None = None
        deadline = self.cluster.loop.now + RECOVERY_S
        while (
            self.cluster.loop.now < deadline
            and not self.cluster.is_healed
            and not any(machine.is_up for machine in lost)
        ):
            await asyncio.sleep(0.3)
            try:
                await self.ask(self.machine(), lambda broker: _recovered(broker, name, phrase))  # noqa: B023
            except Conflict as error:
                found = error.details.get("confirm")
                phrase = found if isinstance(found, str) else phrase
            except TopicNotFound:
                return
            except RaftlogError:
                continue
            else:
                self._faults.counts["recover unsafely"] += 1
                return


async def _recovered(broker: Broker, name: str, phrase: str | None) -> PartitionInfo:
    return await broker.admin.recover_unsafely(TopicPartition(name, 0), phrase, TIMEOUT_MS)


def _identity(topic: TopicInfo) -> tuple[str, int]:
    return topic.topic_id, topic.partitions[0].group_id
