"""Descriptors and disk space are shared between connections, segments and a reserve."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest

from broker.process.descriptors import shares
from broker.process.disk_reserve import LOOK_EVERY_S, DiskReserve
from raftlog.testing.fake_filesystem import FakeFilesystem
from tests.helpers.manual_wall_clock import ManualWallClock


@pytest.mark.parametrize(
    ("limit", "asked", "connections", "held"),
    [
        (256, None, 128, 64),
        (1024, None, 512, 256),
        (1024, 100, 100, 462),
        (1024, 4000, 512, 256),
        (1 << 20, None, 25_000, 65_536),
        (1 << 20, 50_000, 50_000, 65_536),
        (resource.RLIM_INFINITY, None, 25_000, 65_536),
    ],
)
def test_shares(limit: int, asked: int | None, connections: int, held: int) -> None:
    found = shares(limit, asked)
    assert (found.connections_max, found.held_files_max) == (connections, held)
    assert found.connections_max + found.held_files_max < found.limit


def test_setting_that_does_not_fit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    shares(1024, 4000)
    assert "limits.connections_max is 4000" in caplog.text
    assert "ulimit -n" in caplog.text


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200));"
        "from broker.process.descriptors import raise_limit;"
        "print(raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "200 (200, 200)\n"


def disk(capacity_bytes: int) -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.capacity_bytes = capacity_bytes
    return filesystem


def test_the_room_left_is_known_although_nobody_has_asked_to_write() -> None:
    assert DiskReserve(disk(1000), "/data", 0, ManualWallClock()).free_bytes == 1000


def test_there_is_room_until_only_the_reserve_is_left() -> None:
    assert DiskReserve(disk(1001), "/data", 1000, ManualWallClock()).has_room()
    assert not DiskReserve(disk(1000), "/data", 1000, ManualWallClock()).has_room()


def test_half_of_the_reserve_is_left_to_deletions() -> None:
    for free_bytes, is_left in ((501, True), (500, False)):
        reserve = DiskReserve(disk(free_bytes), "/data", 1000, ManualWallClock())
        assert not reserve.has_reserve(), "nobody has looked yet"
        reserve.has_room()
        assert reserve.has_reserve() is is_left


def test_the_disk_is_looked_at_now_and_then() -> None:
    filesystem, clock = disk(1000), ManualWallClock()
    reserve = DiskReserve(filesystem, "/data", 0, clock)
    assert reserve.has_room()
    filesystem.capacity_bytes = 0
    assert reserve.has_room()  # not looked at again yet
    clock.now_ms += int(LOOK_EVERY_S * 1000)
    assert not reserve.has_room()
    assert reserve.free_bytes == 0


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO, errno.ESTALE])
def test_a_disk_that_cannot_be_asked_has_no_room(number: int, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that is no longer mounted, for instance: its broker hands its leaderships over."""

    class Gone(FakeFilesystem):
        def free_bytes(self, path: str) -> int:
            raise OSError(number, os.strerror(number), path)

    clock = ManualWallClock()
    reserve = DiskReserve(Gone(), "/data", 0, clock)
    for _ in range(20):
        assert not reserve.has_room()
        clock.now_ms += int(LOOK_EVERY_S * 1000)
    assert caplog.text.count(os.strerror(number)) == 1
