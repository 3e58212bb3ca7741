"""Markers on their way to partitions."""

from __future__ import annotations

from typing import Any, cast

import pytest

from api.broker_transactions import BrokerMarkers
from raftlog.errors import UnknownTopic
from raftlog.records.control import Marker
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time
from transactions.records import Handle


class Metadata:
    """Of a broker that may be behind; it hears of the topic when it asks."""

    def __init__(self, *, has_topic: bool) -> None:
        self.has_topic = has_topic
        self.is_current = False

    async def current_image(self, timeout_ms: int) -> None:
        """Ask the active controller."""
        self.is_current = True


class Partitions:
    """As this broker reaches them."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.markers: list[Marker] = []

    async def mark(self, target: TopicPartition, marker: Marker, *, timeout_ms: int) -> None:
        """Write it, if the topic is known here."""
        if not (self.metadata.is_current and self.metadata.has_topic):
            raise UnknownTopic("there is no topic here", topic=target.topic)
        self.markers.append(marker)


async def write(partitions: Partitions) -> None:
    markers = BrokerMarkers(cast("Any", partitions.metadata), cast("Any", partitions), cast("Any", None))
    await markers.write(
        ("orders", 0), Handle("copy-1", 7, 3), is_commit=True, coordinator_epoch=2, timeout_ms=1_000
    )


@in_virtual_time
async def test_a_broker_that_is_behind_asks_before_it_takes_a_topic_for_deleted() -> None:
    # requirement: D3
    partitions = Partitions(Metadata(has_topic=True))
    await write(partitions)
    assert partitions.markers == [Marker(7, 3, True, 2, 0)]


@in_virtual_time
async def test_a_topic_that_is_gone_gets_no_marker() -> None:
    with pytest.raises(UnknownTopic):
        await write(Partitions(Metadata(has_topic=False)))
