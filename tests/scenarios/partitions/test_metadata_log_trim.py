"""The metadata log does not grow for ever, and who needs what is gone is sent the image."""

from __future__ import annotations

import pytest

from partitions.hosting import hosted_metadata
from partitions.hosting.hosted_metadata import HostedMetadata
from raftlog.hosting.tenant import SnapshotRetention
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import METADATA_GROUP
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.controlled_cluster import ControlledCluster
from tests.helpers.virtual_time import eventually


@in_virtual_time
async def test_a_broker_that_was_away_gets_the_image_in_place_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosted_metadata, "METADATA_LOG", LogSettings(segment_bytes=1000))
    monkeypatch.setattr(HostedMetadata, "retention", SnapshotRetention(log_bytes_max=4000, entries_kept=3))
    async with ControlledCluster() as cluster:
        controller = await cluster.controller_broker()
        away = next(node for node in cluster.nodes if node != controller.node_id)
        cluster.network.isolate(away)
        for number in range(40):
            await controller.controller.create_topic(
                f"topic-{number}", partitions=1, replication_factor=1, config={}, timeout_ms=5000
            )
        for broker in cluster.brokers.values():
            await broker.retention.look()
        groups = {node: broker.host.groups[METADATA_GROUP] for node, broker in cluster.brokers.items()}
        assert groups[controller.node_id].log.first_index > 10
        assert groups[away].log.first_index == 0
        cluster.network.heal_all()
        behind = cluster.brokers[away].controller
        await eventually(lambda: "topic-39" in behind.image.topics)
        await cluster.brokers[away].retention.look()
        assert groups[away].log.first_index > 10
        assert len(behind.image.topics) == 40


# requirement: F2
@in_virtual_time
async def test_a_broker_that_joins_gets_the_image_where_the_log_no_longer_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosted_metadata, "METADATA_LOG", LogSettings(segment_bytes=1000))
    monkeypatch.setattr(HostedMetadata, "retention", SnapshotRetention(log_bytes_max=4000, entries_kept=3))
    async with ControlledCluster() as cluster:
        controller = await cluster.controller_broker()
        for number in range(40):
            await controller.controller.create_topic(
                f"topic-{number}", partitions=1, replication_factor=1, config={}, timeout_ms=5000
            )
        for broker in cluster.brokers.values():
            await broker.retention.look()
        joined = await cluster.join(4)
        await cluster.registered()
        group = joined.host.groups[METADATA_GROUP]
        assert group.log.first_index > 10
        assert len(joined.controller.image.topics) == 40
        await eventually(lambda: not group.is_rejoining)
        await cluster.join(5)
        await eventually(lambda: len(group.membership.voters) == 5)
