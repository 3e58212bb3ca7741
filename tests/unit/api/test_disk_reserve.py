"""How much room the disk has, as the broker sees it."""

from __future__ import annotations

from api.disk_reserve import LOOK_EVERY_S, DiskReserve
from raftlog.testing.fake_filesystem import FakeFilesystem
from tests.helpers.manual_wall_clock import ManualWallClock


def disk(capacity_bytes: int) -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.capacity_bytes = capacity_bytes
    return filesystem


def test_the_room_left_is_known_although_nobody_has_asked_to_write() -> None:
    assert DiskReserve(disk(1000), "/data", 0, ManualWallClock()).free_bytes == 1000


def test_there_is_room_until_only_the_reserve_is_left() -> None:
    assert DiskReserve(disk(1001), "/data", 1000, ManualWallClock()).has_room()
    assert not DiskReserve(disk(1000), "/data", 1000, ManualWallClock()).has_room()


def test_the_disk_is_looked_at_now_and_then() -> None:
    filesystem, clock = disk(1000), ManualWallClock()
    reserve = DiskReserve(filesystem, "/data", 0, clock)
    assert reserve.has_room()
    filesystem.capacity_bytes = 0
    assert reserve.has_room()  # not looked at again yet
    clock.now_ms += int(LOOK_EVERY_S * 1000)
    assert not reserve.has_room()
    assert reserve.free_bytes == 0
