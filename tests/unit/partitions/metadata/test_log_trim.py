"""The metadata log does not grow for ever, and who needs what is gone is sent the image."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partitions.metadata import log_trim
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import METADATA_GROUP
from tests.helpers.controlled_cluster import ControlledCluster, eventually


def test_a_broker_that_was_away_gets_the_image_in_place_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_trim, "METADATA_LOG", LogSettings(segment_bytes=1000))
    monkeypatch.setattr(log_trim, "LOG_BYTES_MAX", 4000)
    monkeypatch.setattr(log_trim, "ENTRIES_KEPT", 3)

    async def story() -> None:
        async with ControlledCluster(str(tmp_path)) as cluster:
            controller = await cluster.controller_broker()
            away = next(node for node in cluster.nodes if node != controller.node_id)
            cluster.network.isolate(away)
            for number in range(40):
                await controller.controller.create_topic(
                    f"topic-{number}", partitions=1, replication_factor=1, config={}, timeout_ms=5000
                )
            groups = {node: broker.host.groups[METADATA_GROUP] for node, broker in cluster.brokers.items()}
            assert groups[controller.node_id].log.first_index > 10
            assert groups[away].log.first_index == 0
            cluster.network.heal()
            behind = cluster.brokers[away].controller
            await eventually(lambda: "topic-39" in behind.image.topics)
            assert groups[away].log.first_index > 10
            assert len(behind.image.topics) == 40

    asyncio.run(story())
