"""Changes of a log that fail: the replica ends or goes on, and nothing waits for it without end."""

from __future__ import annotations

import asyncio
import errno

from partitions.values import QUORUM
from raftlog.storage.log_storage import LogChange
from raftlog.storage.segmented_log import LogSettings
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of

GROUP = GroupId(1)


async def about_to_cut(cluster: NodeCluster) -> ClusterNode:
    """A deposed leader whose log has what the others do not; its links come back next."""
    await cluster.start()
    old = cluster.leading()
    others = cluster.followers()
    await old.replicas[GROUP].append(batch_of(b"0"), acks=QUORUM, timeout_ms=1000)
    for other in others:
        cluster.network.cut_both(old.node_id, other.node_id)
    for value in (b"1", b"2", b"3"):
        old.groups[GROUP].propose(old.replicas[GROUP]._rules.validated(batch_of(value)))
    await cluster.until(lambda: any(other.groups[GROUP].is_ready for other in others))
    leader = next(other for other in others if other.groups[GROUP].is_ready)
    await leader.replicas[GROUP].append(batch_of(b"new"), acks=QUORUM, timeout_ms=1000)
    await cluster.until(lambda: not old.groups[GROUP].is_leader)
    return old


@in_virtual_time
async def test_a_replica_whose_cut_fails_ends_and_can_be_closed() -> None:
    # requirement: M3
    cluster = NodeCluster(3)
    old = await about_to_cut(cluster)
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
    await cluster.stop()


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
