"""Transactions of one broker, whose ``__transactions`` is one log in memory that commits at once."""

from __future__ import annotations

import random
from itertools import count
from typing import Any, cast

from api.broker_transactions import BrokerMarkers
from groups.service import GroupService
from raftlog.clock import Clock
from raftlog.node.rpc import Calls
from raftlog.types import NodeId
from tests.helpers.instant_groups import OneTopic
from tests.helpers.loop_network import LoopNetwork
from transactions.coordinator import TransactionCoordinator
from transactions.records import Handle, Participant
from transactions.service import TransactionService


class _NoPartitions(BrokerMarkers):
    """Markers arrive at once, and change nothing. Groups are told by the real code."""

    async def write(
        self,
        target: Participant,
        transaction: Handle,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> None:
        """See ``transactions.coordinator.Markers``."""


def instant_transactions(clock: Clock, groups: GroupService) -> TransactionService:
    """The transactions of broker 1, which tell its groups how they end."""
    markers = _NoPartitions(cast("Any", None), cast("Any", None), groups)
    coordinator = TransactionCoordinator(
        "__transactions/0", clock, markers, id_retention_ms=1 << 40, key_retention_ms=1 << 40
    )
    calls = Calls(LoopNetwork(random.Random(1)).member(NodeId(1), []), first_id=1)
    numbers = count(4711)

    async def new_producer_id(timeout_ms: int) -> int:
        return next(numbers)

    topic = OneTopic("__transactions", coordinator)
    return TransactionService(NodeId(1), topic, {0: coordinator}, calls, new_producer_id)
