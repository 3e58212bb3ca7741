"""Transactions of one broker, whose ``__transactions`` is one log in memory that commits at once."""

from __future__ import annotations

import random
from itertools import count
from typing import Any, cast

from broker.coordinators.transactions import BrokerMarkers
from groups.service import GroupService
from raftlog.clock import TrustedClock
from raftlog.node.rpc import Calls
from raftlog.types import NodeId
from tests.helpers.instant_groups import OneTopic
from tests.helpers.loop_network import LoopNetwork
from transactions.coordinator import TransactionCoordinator
from transactions.records import Handle, Participant
from transactions.service import TransactionService


class InstantMarkers:
    """``transactions.coordinator.Markers`` that are acknowledged at once, and change nothing."""

    def __init__(self) -> None:
        self.written: list[Participant] = []

    async def write(
        self,
        target: Participant,
        transaction: Handle,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> None:
        """Noted."""
        self.written.append(target)

    async def end_offsets(self, group: str, transaction: Handle, *, is_commit: bool, timeout_ms: int) -> None:
        """No transaction here has offsets."""


class _GroupMarkers(InstantMarkers):
    """Groups get the outcome by the real code."""

    def __init__(self, groups: GroupService) -> None:
        super().__init__()
        self._broker = BrokerMarkers(cast("Any", None), groups)

    async def end_offsets(self, group: str, transaction: Handle, *, is_commit: bool, timeout_ms: int) -> None:
        """End the offsets of a group, as ``BrokerMarkers`` does."""
        await self._broker.end_offsets(group, transaction, is_commit=is_commit, timeout_ms=timeout_ms)


def instant_transactions(clock: TrustedClock, groups: GroupService) -> TransactionService:
    """The transactions of broker 1, which tell its groups how they end."""
    coordinator = TransactionCoordinator(
        "__transactions/0", clock, _GroupMarkers(groups), id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    numbers = count(4711)

    async def new_producer_id(timeout_ms: int) -> int:
        return next(numbers)

    topic = OneTopic("__transactions", coordinator)
    return TransactionService(NodeId(1), topic, {0: coordinator}, calls, new_producer_id)
