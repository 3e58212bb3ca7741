"""The filesystem port: every byte that storage reads or writes goes through it.

``OsFilesystem`` uses the machine's own filesystem; a simulator has an implementation that can lose unsynced
data, tear writes and fail. Paths are ``str``; all sizes and positions are in bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from raftlog.exhaustion import NO_DESCRIPTOR

Buffer = bytes | bytearray | memoryview

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}) | NO_DESCRIPTOR


def is_disk_full(error: OSError) -> bool:
    """Whether an error means only a lack of room: the disk is unchanged, and another attempt may succeed.

    Room is space on the disk or a file descriptor.
    """
    return error.errno in _DISK_FULL


def is_short_of_descriptors(error: OSError) -> bool:
    """Whether a file could not be opened because this process or the machine has too many open files."""
    return error.errno in NO_DESCRIPTOR


class File(Protocol):
    """An open file. Only ``sync`` may run on another thread than the other methods."""

    @property
    def path(self) -> str:
        """The path that the file was opened with."""

    @property
    def size(self) -> int:
        """Length in bytes, known without a system call."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; return the position of the first byte.

        Raises ``OSError`` (for instance ENOSPC); the file then keeps its length, so that
        the caller may continue once there is room.
        """

    def fill(self, length: int) -> None:
        """Write up to ``length`` zeros after the end, where appends will write; ``size`` stays.

        The file is then longer for all processes that open it. Raises ``OSError``.
        """

    def end_at(self, size: int) -> None:
        """Set ``size`` without a write: the bytes after ``size`` are zeros that ``fill`` has written."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read ``length`` bytes from ``position``; fewer only at the end of the file."""

    def read_into(self, memory: memoryview, position: int) -> int:
        """Fill ``memory`` from ``position`` on; return the bytes read, fewer only at the file's end."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place: a hard state slot, or, when a log is opened, bytes with an
        equal content.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, even if it seems to have this size: the file on the disk may be
        longer.
        """

    def sync(self) -> None:
        """Block until the disk has all data (fdatasync). May be called on another thread.

        An ``OSError`` here is final: after a failed fsync the content of the disk is unknown.
        """

    def descriptor(self) -> int:
        """The file's descriptor, for sendfile or mmap; a simulator raises ``OSError``."""

    def close(self) -> None:
        """Close the file. Idempotent."""


class Filesystem(Protocol):
    """The operations on file names that storage needs."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises ``FileNotFoundError`` unless ``create``."""

    def hold(self, file: File) -> bool:
        """Keep this file open while it is among the most recently used; otherwise its last user closes it.

        Returns whether the file is kept: False if too many files are in use.
        """

    def let_go(self, file: File) -> None:
        """End the effect of ``hold`` for a file: its last user closes it."""

    def read_file(self, path: str) -> bytes:
        """All bytes of a small file. Raises ``FileNotFoundError``."""

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file atomically and durably: temporary file, sync, rename, directory sync."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this path."""

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if the directory does not exist."""

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents, and sync the parents, so that it is durable."""

    def rename(self, path: str, target: str) -> None:
        """Rename a synced file, and replace a file of the new name; or rename a whole directory.

        Durable once the directories of both names are synced; at any time the file has one of the two names.
        """

    def remove(self, path: str) -> None:
        """Remove one file; do nothing if there is no such file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all files below it."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""

    def tree_bytes(self, path: str) -> int:
        """The total size in bytes of all files below a directory; 0 if the directory does not exist."""

    def free_bytes(self, path: str) -> int:
        """The free space in bytes on the disk that holds this directory."""


def file_size(filesystem: Filesystem, path: str) -> int:
    """The length of a file in bytes. Raises ``FileNotFoundError``."""
    file = filesystem.open(path)
    try:
        return file.size
    finally:
        file.close()
