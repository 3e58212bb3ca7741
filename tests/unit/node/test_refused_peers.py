"""A peer on an older copy of its disk is not listened to, and counts as silent."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

from raftlog.node.cluster_time import ClockReading
from raftlog.node.codec import FrameKind, encode_frame, encode_heartbeats
from raftlog.node.group_host import GroupHost
from raftlog.node.peer_disks import PeerDisks
from raftlog.storage.disk_age import Disk, DiskAge
from raftlog.storage.log_storage import Sync
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.loop_network import LoopNetwork
from tests.helpers.virtual_time import VirtualClock

ONE, TWO = NodeId(1), NodeId(2)
Result = TypeVar("Result")


async def _now(work: Callable[[], Result]) -> Result:
    return work()


async def _syncs(syncs: Sequence[Sync]) -> list[OSError | None]:
    return [None for _ in syncs]


def named(disk: Disk) -> memoryview:
    return memoryview(b"".join(encode_frame(FrameKind.DISK, (disk, None))))


# requirement: F6
@in_virtual_time
async def test_frames_of_an_older_copy_are_dropped_until_another_disk_is_named() -> None:
    filesystem = FakeFilesystem()
    filesystem.make_directories("/data")
    transport = LoopNetwork(random.Random(1)).transport(ONE)
    disks = PeerDisks(transport, DiskAge.open(filesystem, "/data", "d", random.Random(1)), lambda: None, _now)
    host = GroupHost(
        ONE, transport, VirtualClock(), random.Random(1), in_a_task(_syncs), on_fatal=print, disks=disks
    )
    heartbeat = memoryview(encode_heartbeats(ClockReading(0, 0), []))
    for disk, is_heard in ((Disk("e", 5), True), (Disk("e", 3), False), (Disk("f", 1), True)):
        host.peer_lost(TWO)
        host.frame_received(TWO, named(disk))
        host.frame_received(TWO, heartbeat)
        assert host.is_reachable(TWO) == is_heard
