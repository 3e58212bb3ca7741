"""The machine's filesystem without syncs, for tests without power losses.

Tests run several brokers of one process, and their syncs, on one event loop. With a disk that takes 50 ms for
each sync, all these brokers would be blocked for seconds at their start.
"""

from __future__ import annotations

import os
from pathlib import Path

from raftlog.storage.filesystem import File
from raftlog.storage.os_filesystem import OsFile, OsFilesystem


class UnsyncedFile(OsFile):
    """A file whose bytes reach the operating system, but not necessarily the disk."""

    __slots__ = ()

    def sync(self) -> None:
        """Return at once, without a sync."""


class UnsyncedFilesystem(OsFilesystem):
    """Files and directories of this machine, at the speed of its memory."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises ``FileNotFoundError`` unless ``create``."""
        return UnsyncedFile(path, os.O_RDWR | os.O_CREAT if create else os.O_RDWR)

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file's content atomically."""
        temporary = path + ".tmp"
        Path(temporary).write_bytes(data)
        os.replace(temporary, path)

    def sync_directory(self, path: str) -> None:
        """Return at once, without a sync."""
