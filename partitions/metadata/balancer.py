"""Makes and carries out balancing plans: a part of the active controller.

Decides: when a plan is made automatically, and when a plan waits. Leaves to others: the moves of a plan
(``balancing``), their states (``plans``), writing commands (``active``), and making preferred leaders lead
(``partitions.reassignment.preferred_leaders``).

Healing goes first, and no plan is made or continued while a broker in use is missing, draining or without
room. An automatic plan needs brokers that have not changed for ``after_ms``; after each plan, and after each
look without a plan, that time begins again. So a broker that stops and soon returns causes no moves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from partitions.metadata.balancing import Loads, PlanProposal, propose
from partitions.metadata.commands import EndPlan
from partitions.metadata.healing import healing_counts
from partitions.metadata.image import BrokerInfo, MetadataImage
from partitions.metadata.move_planner import MoveReplicas
from partitions.metadata.plans import is_moving, missing_brokers, next_of_plan
from raftlog.errors import Conflict
from raftlog.node.computing import computed
from raftlog.types import NodeId

COPY_BYTES_PER_S: Final = 100 << 20  # assumed if the rate is unlimited
SHORT_PARTITIONS: Final = 200  # planning for up to this number blocks the loop for a few milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancingSettings:
    """Settings for when the active controller balances the brokers, and how fast."""

    moves_max: int = (
        2  # replicas that a plan moves at a time; 0: only plans of operators, one replica at a time
    )
    after_ms: int = 120_000  # time without a change of the brokers before a plan
    copy_bytes_per_s: int = COPY_BYTES_PER_S  # maximum of one broker; to estimate the duration of a plan


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The brokers that the active controller hears, and the brokers that it cannot use."""

    heard: frozenset[NodeId]
    leaving: frozenset[NodeId]  # dead or decommissioned
    unable: frozenset[NodeId]  # without room, or recently unable to open a new replica


class Balancer:
    """The balancing duties of one controller."""

    def __init__(
        self, settings: BalancingSettings, collect: Callable[[Collection[NodeId]], Awaitable[Loads]]
    ) -> None:
        """``collect`` asks brokers for the loads of the partitions they lead."""
        self._settings = settings
        self._collect = collect
        self._brokers: Mapping[NodeId, BrokerInfo] = {}
        self._since_ms: float | None = None
        self._nothing_due_in: object = None

    def begin_again(self) -> None:
        """Restart the time since the last change of the brokers, because this controller does not lead."""
        self._since_ms = None

    def next_of_plan(self, image: MetadataImage, view: BrokerView) -> list[MoveReplicas | EndPlan]:
        """The commands to continue or end the plan in the metadata; empty if no plan or command is due."""
        state = (image.version, view)
        if image.plan is None or state == self._nothing_due_in:
            return []
        due = next_of_plan(image, view.heard - view.unable, self._settings.moves_max or 1)
        if _is_healing(image, view):
            due = [command for command in due if isinstance(command, EndPlan)]
        self._nothing_due_in = None if due else state
        return due

    def is_plan_due(self, image: MetadataImage, view: BrokerView, now_ms: float) -> bool:
        """Whether to make a plan now; after True the method stays False for at least ``after_ms``."""
        is_calm = (
            image.plan is None
            and image.brokers is self._brokers
            and not missing_brokers(image, view.heard - view.unable)
        )
        if not self._settings.moves_max or not is_calm or self._since_ms is None:
            self._brokers, self._since_ms = image.brokers, now_ms
            return False
        if now_ms - self._since_ms < self._settings.after_ms:
            return False
        self._since_ms = now_ms
        return not is_moving(image) and not _is_healing(image, view)

    async def propose(self, image: MetadataImage, view: BrokerView) -> PlanProposal:
        """A plan for the brokers in use. Raises ``Conflict`` while a broker in use can take no replica."""
        in_use = [node for node in image.brokers if image.is_in_use(node)]
        missing = missing_brokers(image, view.heard - view.unable)
        if missing:
            raise Conflict(
                f"brokers {missing} are down, draining or without room, so the brokers cannot be balanced; "
                "start or recommission these brokers, or decommission them",
                brokers=[str(node) for node in missing],
            )
        loads = await self._collect(in_use)
        rate = self._settings.copy_bytes_per_s or COPY_BYTES_PER_S
        is_short = sum(len(topic.partitions) for topic in image.topics.values()) <= SHORT_PARTITIONS
        return await computed(lambda: propose(image, in_use, loads, rate), is_short=is_short)


def _is_healing(image: MetadataImage, view: BrokerView) -> bool:
    leaving: Collection[NodeId] = view.leaving
    return bool(leaving) and healing_counts(image, leaving).to_restore > 0
