"""The filesystem port: every byte that storage reads or writes goes through it.

``OsFilesystem`` is the machine's own; a simulator brings another that can lose what was not
synced, tear writes and fail. Paths are ``str``; all numbers are bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from raftlog.exhaustion import NO_DESCRIPTOR

Buffer = bytes | bytearray | memoryview

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG}) | NO_DESCRIPTOR


def is_disk_full(error: OSError) -> bool:
    """Whether there is only no room: all is as before, and another try may succeed.

    Room is space on the disk, or a file descriptor.
    """
    return error.errno in _DISK_FULL


def is_short_of_descriptors(error: OSError) -> bool:
    """Whether a file could not even be opened, because this process or the machine has too many open."""
    return error.errno in NO_DESCRIPTOR


class File(Protocol):
    """An open file. Not safe for use by two threads, except ``sync``."""

    @property
    def path(self) -> str:
        """The path that the file was opened with."""

    @property
    def size(self) -> int:
        """Length in bytes, kept here: no system call."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; return the position of the first byte.

        Raises ``OSError`` (for instance ENOSPC); the file is then as long as before, so that
        the caller may continue once there is room.
        """

    def fill(self, length: int) -> None:
        """Write up to ``length`` zeros behind the end, where appends will be; ``size`` stays.

        The file is longer then for all who open it. Raises ``OSError``.
        """

    def end_at(self, size: int) -> None:
        """Count what is behind as nothing: it was written by ``fill``. The disk is left as it is."""

    def read_at(self, position: int, length: int) -> bytes:
        """Read ``length`` bytes from ``position``; fewer only at the end of the file."""

    def read_into(self, memory: memoryview, position: int) -> int:
        """Fill ``memory`` from ``position`` on; how many bytes: fewer only at the end of the file."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place: hard state slots, and on opening the bytes that stand there already."""

    def truncate(self, size: int) -> None:
        """Cut to ``size`` bytes; a cut to the present size is one, too, if the disk may have more."""

    def sync(self) -> None:
        """Block until the disk has everything (fdatasync). May be called on another thread.

        An ``OSError`` here is final: after a failed fsync the content of the disk is unknown.
        """

    def descriptor(self) -> int:
        """For sendfile or mmap in production; a simulator raises ``OSError``."""

    def close(self) -> None:
        """Idempotent."""


class Filesystem(Protocol):
    """The operations on names that storage needs, and no more."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises ``FileNotFoundError`` unless ``create``."""

    def hold(self, file: File) -> bool:
        """Keep this file open while it is among the most recently used; else it closes with its last user.

        Whether it is held: not if too many files that were are in use.
        """

    def let_go(self, file: File) -> None:
        """Hold it no more."""

    def read_file(self, path: str) -> bytes:
        """All bytes of a small file. Raises ``FileNotFoundError``."""

    def replace_file(self, path: str, data: bytes) -> None:
        """Atomically and durably: temporary file, sync, rename, directory sync."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def list_directory(self, path: str) -> list[str]:
        """Names in it, sorted; empty when it is not there."""

    def make_directories(self, path: str) -> None:
        """Create with parents; durable once the parents are synced, which this does."""

    def rename(self, path: str, target: str) -> None:
        """Give a synced file another name, in place of what has it, or a whole directory.

        Durable once the directories of both names are synced; a directory has one of the two at any time.
        """

    def remove(self, path: str) -> None:
        """Remove one file; nothing happens when it is not there."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it."""

    def sync_directory(self, path: str) -> None:
        """Make names created, renamed and removed in it durable."""

    def tree_bytes(self, path: str) -> int:
        """Bytes of all files below this directory; 0 when it is not there."""

    def free_bytes(self, path: str) -> int:
        """The free bytes of the disk that holds this directory."""


def file_size(filesystem: Filesystem, path: str) -> int:
    """Bytes of a file. Raises ``FileNotFoundError``."""
    file = filesystem.open(path)
    try:
        return file.size
    finally:
        file.close()
