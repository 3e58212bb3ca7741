"""A disk that fails a sync that the kernel does: an ext4 on a loop device without room below it."""

from __future__ import annotations

import errno
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from raftlog.storage.linux_aio import LinuxAio
from raftlog.testing.waits import LIMIT_S

pytestmark = pytest.mark.e2e
DISK_MB, ROOM_MB = 64, 16


@pytest.fixture
def failing_disk(directory: Path) -> Iterator[Path]:
    """Its file system takes more than there is room for: written pages go nowhere."""
    room, disk = directory / "room", directory / "disk"
    image = room / "image"
    with ExitStack() as mounted:
        for where, command in (
            (room, ["mount", "-t", "tmpfs", "-o", f"size={ROOM_MB}m", "tmpfs", str(room)]),
            (None, ["truncate", "-s", f"{DISK_MB}m", str(image)]),
            (None, ["mkfs.ext4", "-q", "-O", "^has_journal", str(image)]),
            (disk, ["mount", "-o", "loop", str(image), str(disk)]),
        ):
            if where is not None:
                where.mkdir()
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except FileNotFoundError as error:
                pytest.skip(f"no failing disk can be made here: {error}")
            if done.returncode != 0:
                pytest.skip(f"no failing disk can be made here: {done.stderr.strip()}")
            if where is not None:
                mounted.callback(subprocess.run, ["umount", str(where)], check=True)
        yield disk


# requirement: L9
def test_the_error_of_a_sync_is_reported(failing_disk: Path) -> None:
    try:
        aio = LinuxAio()
    except OSError as error:
        pytest.skip(f"the kernel syncs no files here: {error}")
    told = list[int]()
    with (failing_disk / "log").open("wb", buffering=0) as file:
        for _ in range(2 * ROOM_MB):
            file.write(os.urandom(1 << 20))
        assert aio.begin(file.fileno(), told.append)
        select.select([aio.eventfd], [], [], LIMIT_S)
        aio.deliver()
    assert told in ([errno.EIO], [errno.ENOSPC])
