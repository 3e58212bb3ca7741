"""Open transactions of many replicas are looked at in several turns of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from broker.coordinators.lost_markers import ASKED_MAX, LOOKED_AT_MAX, LostMarkers
from partitions.replica.transaction_table import OpenTransaction
from raftlog.records.control import Marker
from raftlog.types import TopicPartition
from tests.helpers.virtual_time import VirtualLoop
from transactions.requests import Known, TransactionNumber

# requirement: N2


class Replica:
    """A replica with open transactions."""

    def __init__(self, number: int, opened: int) -> None:
        self.target = TopicPartition("orders", number)
        self.opened = [OpenTransaction(each, 0, each) for each in range(opened)]
        self.markers: list[Marker] = []

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """Open transactions without a marker."""
        return tuple(self.opened)

    async def mark(self, marker: Marker, *, timeout_ms: int) -> None:
        """The transaction has ended."""
        self.markers.append(marker)


class Coordinators:
    """Coordinators that know nothing but one that is committed and one that is open."""

    asked: frozenset[TransactionNumber] = frozenset()

    async def known(self, asked: Iterable[TransactionNumber], timeout_ms: int) -> Known:
        """The numbers are noted."""
        self.asked = frozenset(asked)
        return Known(open=((0, 0),), committed=((1, 0),))


def looking(*replicas: Replica) -> tuple[LostMarkers, Coordinators]:
    coordinators = Coordinators()
    known = {(each.target.topic, each.target.partition): each for each in replicas}
    return LostMarkers(cast("Any", coordinators), cast("Any", known)), coordinators


async def test_many_replicas_are_looked_at_in_several_turns() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    markers, _ = looking(*(Replica(number, 0) for number in range(3 * LOOKED_AT_MAX)))
    before = loop.turns
    await markers.look()
    assert loop.turns >= before + 3


async def test_what_is_open_in_two_looks_is_asked_for_and_ended() -> None:
    first, second = Replica(0, 3), Replica(1, 2 * ASKED_MAX)
    markers, coordinators = looking(first, second)
    await markers.look()
    assert not coordinators.asked
    first.opened.append(OpenTransaction(9_999_999, 0, 9))
    await markers.look()
    assert len(coordinators.asked) == ASKED_MAX - 3, "the numbers of the first replica are there twice"
    assert [(each.producer_id, each.is_commit) for each in first.markers] == [(1, True), (2, False)]
    assert len(second.markers) == ASKED_MAX - 4
