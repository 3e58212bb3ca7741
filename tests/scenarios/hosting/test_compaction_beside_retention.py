"""Compaction of a log whose segments retention deletes meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from partitions.values import QUORUM
from raftlog.hosting.compaction import CompactionManager, _Compacted
from raftlog.hosting.tenant import CompactionRules
from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.storage.segment_rewriter import RewrittenSegment
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import GroupId, Index
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.compacting import compactor
from tests.helpers.node_cluster import NodeCluster

GROUP = GroupId(1)
RULES = CompactionRules(frozenset)
Result = TypeVar("Result")


@in_virtual_time_with(
    lambda: NodeCluster(1, log_settings=LogSettings(segment_bytes=300, index_interval_bytes=100))
)
async def test_retention_that_is_faster_is_no_damage(cluster: NodeCluster) -> None:
    node = cluster.leading()
    group = node.groups[GROUP]
    log = group.log
    assert isinstance(log, SegmentedLog)
    for number in range(40):
        batch = build_batch([Record(b"value", b"%d" % (number % 2))], codec=Codec.NONE, timestamp_ms=1)
        await node.replicas[GROUP].append(batch, acks=QUORUM, timeout_ms=1000)
    deleting: list[asyncio.Task[Index]] = []

    async def run(step: Callable[[], Result]) -> Result:
        """When the first segment is rewritten, retention asks first for its change of the log."""
        with node.on_a_thread():
            found = step()
        if isinstance(found, RewrittenSegment) and not deleting:
            deleting.append(asyncio.create_task(group.truncate_prefix(Index(log.closed_segments[-1].base))))
            await asyncio.sleep(0)
        return found

    manager = CompactionManager(node.host, node.filesystem, run, tuple, 1 << 40)
    known = _Compacted(group, log, log.first_index, 1)
    first = log.first_index
    work = compactor(node.filesystem, log)
    assert not await manager._carry_out(known, work, RULES)
    assert await deleting[0] > first
    assert group.stopped is None
    await cluster.settled()
    work = compactor(node.filesystem, log)
    assert await manager._carry_out(known, work, RULES)
