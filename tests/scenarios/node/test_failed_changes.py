"""Changes of a log that fail: the replica ends or goes on, and nothing waits for it without end."""

from __future__ import annotations

import asyncio
import errno

from raftlog.storage.log_storage import LogChange
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time, in_virtual_time_with
from tests.helpers.node_cluster import NodeCluster

GROUP = GroupId(1)


@in_virtual_time_with(lambda: NodeCluster(3))
async def test_a_replica_whose_cut_fails_ends_and_can_be_closed(cluster: NodeCluster) -> None:
    # requirement: M3
    old = await cluster.depose()
    group = old.groups[GROUP]
    old.filesystem.fails_sync = lambda path: path.endswith(".log")
    cluster.network.heal_all()
    await cluster.until(lambda: group.stopped is not None)
    old.filesystem.fails_sync = lambda path: False
    rounds = old.host.flusher.rounds
    closing = group.close()
    await asyncio.sleep(5)
    is_closed, rounds = closing.done(), old.host.flusher.rounds - rounds
    old.crash()
    assert is_closed
    assert rounds < 10
    await old.start()
    await cluster.settled()


@in_virtual_time
async def test_a_snapshot_is_installed_alone_also_behind_a_change_that_found_no_room() -> None:
    settings = LogSettings(segment_bytes=300, index_interval_bytes=512)
    cluster = NodeCluster(2, log_settings=settings)
    await cluster.start()
    leader, behind = cluster.leading(), cluster.followers()[0]
    await cluster.leave_behind(behind)
    behind.sync_s = 2.0
    await behind.start()
    group = behind.groups[GROUP]

    def without_room() -> None:
        raise OSError(errno.ENOSPC, "no room for a moment")

    failing = asyncio.create_task(group.change_log(lambda: LogChange(without_room)))
    await cluster.until(lambda: group._is_installing)
    assert not failing.done()
    await failing
    assert group._is_installing
    leader.crash()  # and is elected again, in a new term
    await leader.start()
    await cluster.until(lambda: group.log.first_index > 0)
    assert behind.fatal == []
    assert group.stopped is None
    behind.sync_s = 0.002
    await cluster.settled()
    await cluster.stop()
