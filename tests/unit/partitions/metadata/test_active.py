"""The active controller's own answers, in a cluster of one broker and in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from partitions.metadata.active import ActiveController, ControllerSettings
from partitions.metadata.commands import command_batch
from partitions.metadata.machine import MetadataMachine
from partitions.metadata.requests import CurrentVersion
from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.node.group_host import GroupHost
from raftlog.records.batch import stamp
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import METADATA_GROUP, NodeId, Term
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.metadata_images import register
from tests.helpers.quiet_listener import QuietListener
from tests.helpers.virtual_time import VirtualClock

ME = NodeId(1)


async def syncs(works: Sequence[DiskWork]) -> list[OSError | None]:
    """A disk that takes a while."""
    for work in works:
        await asyncio.sleep(0.01)
        work.run()
    return [None for _ in works]


def broken(error: BaseException) -> None:
    raise AssertionError(repr(error))


def log_with_commands(count: int) -> SegmentedLog:
    """A log of metadata whose entries its broker does not yet know to be committed."""
    log = SegmentedLog.open(FakeFilesystem(), "/metadata", LogSettings(), VirtualClock())
    log.save_hard_state(HardState(Term(1), ME))
    for at in range(count):
        batch = command_batch(register(at + 1), timestamp_ms=0)
        log.append([stamp(batch.data, base_offset=at, leader_epoch=1, append_time_ms=0)])
    sync = log.take_sync()
    assert sync is not None
    sync.run()
    log.sync_finished(sync)
    return log


@in_virtual_time
async def test_the_current_version_is_that_of_all_that_was_committed_before_the_question() -> None:
    """A controller that has just been elected has yet to apply what its predecessor committed."""
    transport = LoopNetwork(random.Random(1)).transport(ME)
    host = GroupHost(ME, transport, VirtualClock(), random.Random(1), in_a_task(syncs), on_fatal=broken)
    await host.start()
    machine = MetadataMachine()
    group = host.open_group(
        METADATA_GROUP, log_with_commands(3), machine, Membership(frozenset({ME})), QuietListener()
    )
    while not group.is_leader:
        await asyncio.sleep(0.001)
    assert machine.image.version == 0
    active = ActiveController(host, group, machine, ControllerSettings(cluster_id="c"), "b")
    assert (await active.handle(CurrentVersion(), 1000)).version == machine.image.version == 3
    await host.stop()
