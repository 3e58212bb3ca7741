"""Simulates real power losses: a directory on its own ext4 file system, which can end without a flush.

::

    with PowerDisk(cluster.data_directory(1), size_mb=64) as disk:   # mounted
        disk.lose_power()
        cluster.kill(1)
        disk.restore()

The file system is in an image file beside the directory, mounted with a commit interval of five minutes: data
that was not synced is in memory only. ``EXT4_IOC_SHUTDOWN`` ends the file system at once, without flushing
its journal; the next mount replays the journal, as after a real power loss.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

SHUTDOWN: Final = 0x8004587D  # EXT4_IOC_SHUTDOWN
WITHOUT_LOG_FLUSH: Final = struct.pack("I", 2)
COMMIT_S: Final = 300
PROGRAMS: Final = {
    "mkfs.ext4": "e2fsprogs",
    "mount": "mount",
    "umount": "mount",
    "unshare": "util-linux",
}
# Waits for the end of its input, then unmounts the directory if it is still mounted.
KEEPER: Final = 'read -r _; umount --lazy "$1" 2>/dev/null'
BUSY_S: Final = 5.0


class PowerFailed(Exception):
    """A command failed; the message has the command and its output."""


def missing() -> str | None:
    """Return the reason why power losses do not work on this machine, and the remedy; None if they work."""
    if sys.platform != "linux":
        return "power loss needs Linux: run chaos in Docker (--privileged)"
    if os.geteuid() != 0:
        return "power loss needs root: run with sudo, or in Docker (--privileged)"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"the program {program} is missing: install {package}"
    with tempfile.TemporaryDirectory(prefix="raftlog-power-") as name:
        try:
            with PowerDisk(Path(name, "disk"), size_mb=8) as disk:
                disk.lose_power()
                disk.restore()
        except (OSError, PowerFailed) as error:
            return (
                f"power loss does not work on this machine ({error}): the kernel needs loop devices and "
                "ext4, and a container needs --privileged"
            )
    return None


class PowerDisk:
    """A disk at ``directory``, which is created if it is missing. A new disk is empty."""

    def __init__(self, directory: Path, size_mb: int) -> None:
        self.directory = directory
        self._image = directory.with_name(f"{directory.name}.ext4")
        self._size_mb = size_mb
        self._is_mounted = False
        self._files_before: dict[Path, int] = {}
        self._keeper: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """Create the disk if it is new, and mount it. Raises ``PowerFailed``."""
        self.directory.mkdir(parents=True, exist_ok=True)
        is_new = not self._image.exists()
        if is_new:
            with self._image.open("wb") as image:
                image.truncate(self._size_mb << 20)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0", str(self._image))
        options = f"loop,noatime,commit={COMMIT_S}"
        _run("mount", "-t", "ext4", "-o", options, str(self._image), str(self.directory))
        self._is_mounted = True
        if is_new:
            (self.directory / "lost+found").rmdir()
            self.sync()

    def sync(self) -> None:
        """Write all unsynced data to the disk."""
        _run("sync", "--file-system", str(self.directory))

    def lose_power(self) -> None:
        """Cut the power of the disk: from now on all calls fail, and data that was not synced is lost.

        The caller ends the processes that use the disk, and then calls ``restore``.
        """
        files = [Path(found, name) for found, _, names in os.walk(self.directory) for name in names]
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, WITHOUT_LOG_FLUSH)
        finally:
            os.close(descriptor)
        self._files_before = _sizes(files)  # sizes in memory: files still grew until the call above

    def restore(self) -> dict[Path, int]:
        """Mount the disk again; return the files that the power loss cut or removed, with the number of lost
        bytes.

        Raises ``PowerFailed``, also if a process still uses the disk.
        """
        self.unmount()
        self.mount()
        now = _sizes(list(self._files_before))
        lost = {path: size - now.get(path, 0) for path, size in self._files_before.items()}
        return {path: size for path, size in lost.items() if size > 0}

    def unmount(self) -> None:
        """Unmount the disk if it is mounted. Raises ``PowerFailed`` if a process uses the disk."""
        deadline = time.monotonic() + BUSY_S
        while self._is_mounted:
            try:
                _run("umount", str(self.directory))
                self._is_mounted = False
            except PowerFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def __enter__(self) -> Self:
        self.mount()
        # A killed harness leaves no mount, because its end of the pipe is then closed. In its own network
        # namespace the keeper is not killed with the brokers.
        command = ["unshare", "--net", "sh", "-c", KEEPER, "sh", str(self.directory)]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.unmount()
        except PowerFailed:
            _run(
                "umount", "--lazy", str(self.directory)
            )  # takes effect when the last process that uses the disk has ended
            self._is_mounted = False
            if error is None:
                raise
        finally:
            self._image.unlink(missing_ok=True)
            assert self._keeper is not None
            self._keeper.communicate()


def _sizes(files: list[Path]) -> dict[Path, int]:
    found = {}
    for path in files:
        try:
            found[path] = path.stat().st_size
        except OSError:  # the file was removed, or is no longer in memory
            continue
    return found


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PowerFailed(f"{' '.join(command)}: {' '.join(done.stderr.split())}")
