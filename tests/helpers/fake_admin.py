"""Operations on partitions without replicas: leaders move at once, replicas during a wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from partitions.metadata.commands import RecoveredUnsafely
from partitions.metadata.image import PartitionInfo
from partitions.metadata.machine import apply_command
from partitions.metadata.move_planner import MoveReplicas, find
from partitions.reassignment.unsafe_recovery import Survey, survey
from partitions.routing.rpc import LogEnd
from raftlog.errors import Conflict, InvalidRequest, LeadershipNotMoved
from raftlog.types import EntryId, Index, NodeId, Term, TopicPartition
from tests.helpers.fake_controller import FakeController


class Leaders(Protocol):
    """The part of ``FakeGateway`` that is needed here."""

    leaders: dict[TopicPartition, NodeId | None]

    def leader_of(self, target: TopicPartition) -> NodeId | None:
        """The leader."""


class FakeAdmin:
    """Like ``PartitionAdmin``. ``unmoved`` delays transfers, ``dead`` brokers do not answer.

    A move is complete once a request waits for it, with ``moves_at_once`` in the call.
    """

    def __init__(self, controller: FakeController, gateway: Leaders) -> None:
        self.controller = controller
        self.gateway = gateway
        self.unmoved = self.moves_at_once = False
        self.dead: set[NodeId] = set()
        self.terms: dict[TopicPartition, Term] = {}

    async def transfer_leadership(
        self, target: TopicPartition, to: NodeId | None, timeout_ms: int, term: Term | None = None
    ) -> tuple[NodeId, Term]:
        """At once, into term 8."""
        _, partition = find(self.controller.image, target.topic, target.partition)
        others = [node for node in partition.replicas if node != self.gateway.leader_of(target)]
        if to is not None and to not in partition.replicas:
            raise InvalidRequest(f"broker {to} is no voter of {target}", field="to")
        if to in self.dead or not others:
            raise Conflict(f"nobody can take {target} over")
        if self.unmoved:
            raise LeadershipNotMoved("no other broker led in time; retry")
        led, led_term = self.gateway.leader_of(target), self.terms.get(target, Term(7))
        if term is not None and term < led_term and led is not None:
            return led, led_term
        chosen = others[0] if to is None else to
        self.gateway.leaders[target], self.terms[target] = chosen, Term(8)
        return chosen, Term(8)

    async def change_replicas(self, wish: MoveReplicas, timeout_ms: int) -> PartitionInfo:
        """The target is set."""
        await self.controller.change_replicas(wish, timeout_ms)
        await self.until_settled(TopicPartition(wish.name, wish.partition), int(self.moves_at_once))
        return find(self.controller.image, wish.name, wish.partition)[1]

    async def until_settled(self, target: TopicPartition, wait_ms: int) -> bool:
        """A wait completes the move."""
        topic, partition = find(self.controller.image, target.topic, target.partition)
        if partition.target and wait_ms:
            moved = replace(partition, replicas=partition.target, target=())
            rows = tuple(moved if row is partition else row for row in topic.partitions)
            topics = {**self.controller.image.topics, topic.name: replace(topic, partitions=rows)}
            self.controller.image = replace(self.controller.image, topics=topics)
            return True
        return not partition.target

    async def recover_unsafely(
        self, target: TopicPartition, confirm: str | None, timeout_ms: int
    ) -> PartitionInfo:
        """Recovers from a broker that is not ``dead``."""
        topic, partition = find(self.controller.image, target.topic, target.partition)
        found = self._survey(target, partition)
        if not found.is_needed or found.survivor is None:
            raise Conflict(f"a majority of {target} answers")
        if confirm != found.phrase:
            raise Conflict(found.estimate, confirm=found.phrase, replicas=found.lines)
        end = found.ends[found.survivor]
        command = RecoveredUnsafely(
            topic.name,
            topic.topic_id,
            target.partition,
            partition.group_id,
            found.survivor,
            found.lost,
            end.last.term,
            end.last.index,
            end.commit_index,
            1_000,
        )
        image = self.controller.image
        self.controller.image, _ = apply_command(image, command, image.version + 1)
        return find(self.controller.image, target.topic, target.partition)[1]

    async def until_led(self, target: TopicPartition, wait_ms: int) -> bool:
        """There is always a leader."""
        return True

    def _survey(self, target: TopicPartition, partition: PartitionInfo) -> Survey:
        voters = frozenset(partition.replicas)
        end = LogEnd(last=EntryId(Term(7), Index(41)), commit_index=Index(40), halves=(voters,))
        return survey(target, partition.replicas, dict.fromkeys(voters - self.dead, end))
