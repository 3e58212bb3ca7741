"""The machine's own filesystem.

Decides how data reaches the disk: an append is one ``pwritev`` at the length that the object knows. So
no later append builds on a partly failed append. A file closes itself when its last
user releases it, so readers may use a file that the log has already deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple, Unpack

from raftlog.storage.filesystem import Buffer, File, is_short_of_descriptors
from raftlog.storage.held_files import HeldFiles

Opened = TypeVar("Opened")
Arguments = TypeVarTuple("Arguments")

_BUFFERS_PER_WRITE_MAX = os.sysconf("SC_IOV_MAX") if hasattr(os, "sysconf") else 16
READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags to read. O_NONBLOCK: opening a pipe must not wait for a writer; regular files ignore the flag."""
_OPEN_FLAGS = os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_never = threading.Event()
_WAITS_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # for a free descriptor
FILE_MODE = 0o600  # only the owner may read records
DIRECTORY_MODE = 0o700
HELD_FILES_MAX = 512
_sync_data = getattr(os, "fdatasync", os.fsync)

_guard = threading.Lock()
"""The lock for the ``_closing`` and ``_syncing`` fields of all files; one lock suffices, as it is held
briefly.
"""


class _Descriptor:
    """The descriptor of a file; closed once the file has no more users.

    The file itself has no ``__del__``: during that call weak references still return the object, and another
    thread would write to a descriptor that is being closed, or to the next file with this number.
    """

    __slots__ = ("number",)

    def __init__(self, path: str, flags: int) -> None:
        self.number = -1
        self.number = os.open(path, flags, FILE_MODE)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        self.close()


class OsFile:
    """An open regular file; other kinds raise ``OSError``. The file closes itself after its last use.

    ``sync`` may run on another thread, even while ``close`` is called on this one.
    """

    __slots__ = ("__weakref__", "_closing", "_descriptor", "_owned", "_path", "_size", "_syncing")

    def __init__(self, path: str, flags: int) -> None:
        self._owned = _Descriptor(path, flags)
        self._descriptor = self._owned.number
        self._closing = False
        self._path = path
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        self._size = found.st_size
        self._syncing = 0

    @property
    def path(self) -> str:
        """The path that the file was opened with."""
        return self._path

    @property
    def size(self) -> int:
        """Length in bytes, known without a system call."""
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; return the position of the first byte."""
        start = self._size
        try:
            if len(buffers) == 1:
                written = os.pwrite(self.descriptor(), buffers[0], start)
            else:
                written = os.pwritev(self.descriptor(), buffers[:_BUFFERS_PER_WRITE_MAX], start)
            wanted = sum(map(len, buffers))
            if written != wanted:
                self._append_rest(buffers, start, written, wanted)
        except OSError:
            # If even this fails, the next append overwrites the rest: it starts at ``_size``.
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise
        self._size = start + wanted
        return start

    def fill(self, length: int) -> None:
        """Write zeros after the end; ``size`` stays."""
        os.pwrite(self.descriptor(), bytes(length), self._size)

    def end_at(self, size: int) -> None:
        """Set ``size``; the bytes after it are zeros that do not count."""
        self._size = size

    def _append_rest(self, buffers: Sequence[Buffer], start: int, written: int, wanted: int) -> None:
        rest = [memoryview(buffer) for buffer in buffers]
        skip = written
        while written < wanted:
            while skip >= len(rest[0]):
                skip -= len(rest.pop(0))
            rest[0] = rest[0][skip:]
            skip = os.pwritev(self._descriptor, rest[:_BUFFERS_PER_WRITE_MAX], start + written)
            written += skip

    def read_at(self, position: int, length: int) -> bytes:
        """Read ``length`` bytes from ``position``; fewer only at the end of the file."""
        data = os.pread(self.descriptor(), length, position)
        if len(data) == length or not data:
            return data
        parts = [data]  # a signal or a system limit ended the read, or this is the end of the file
        done = len(data)
        while done < length and (data := os.pread(self._descriptor, length - done, position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def read_into(self, memory: memoryview, position: int) -> int:
        """Fill ``memory`` from ``position`` on; return the bytes read, fewer only at the file's end."""
        done = 0
        while rest := memory[done:]:
            count = os.preadv(self.descriptor(), [rest], position + done)
            if not count:
                break
            done += count
        return done

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.descriptor(), view, position)
            view = view[written:]
            position += written
        self._size = max(self._size, position)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(self.descriptor(), size)
        self._size = size

    def sync(self) -> None:
        """Block until the disk has all data; a file that was closed meanwhile has nothing to sync."""
        descriptor = self.begin_sync()
        if descriptor is None:
            return
        try:
            _sync_data(descriptor)
        finally:
            self.end_sync()

    def begin_sync(self) -> int | None:
        """The descriptor to sync, which stays open until ``end_sync``; None if the file is closed."""
        with _guard:
            if self._closing:
                return None
            self._syncing += 1
            return self._descriptor

    def end_sync(self) -> None:
        """Release the descriptor from ``begin_sync``."""
        with _guard:
            self._syncing -= 1
            if self._closing and not self._syncing:
                self._owned.close()

    def descriptor(self) -> int:
        """The descriptor, for sendfile or mmap."""
        if self._closing:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor

    def close(self) -> None:
        """Close the file without waiting: a running sync closes it when it is done. Idempotent."""
        with _guard:
            if not self._closing:
                self._closing = True
                if not self._syncing:
                    self._owned.close()


class OsFilesystem:
    """Files and directories of this machine.

    ``held_files_max``: the number of files that ``hold`` keeps open.
    """

    __slots__ = ("_held", "_making", "_named")

    def __init__(self, held_files_max: int = HELD_FILES_MAX) -> None:
        self._held = HeldFiles(held_files_max)
        self._making = threading.Lock()
        self._named: set[str] = set()  # directories whose names are known to be on the disk

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises ``FileNotFoundError`` unless ``create``."""
        return self._opened(OsFile, path, _OPEN_FLAGS | os.O_CREAT if create else _OPEN_FLAGS)

    def hold(self, file: File) -> bool:
        """Keep this file open while it is among the most recently used; return whether it is kept."""
        return self._held.hold(file)

    def let_go(self, file: File) -> None:
        """End the effect of ``hold`` for a file: its last user closes it."""
        self._held.let_go(file)

    def _opened(self, open_it: Callable[[Unpack[Arguments]], Opened], *arguments: *Arguments) -> Opened:
        """Call ``open_it``; if the process is short of descriptors, first close held files that are not in
        use.

        If that is not enough, a thread that may wait repeats this: most descriptors are needed only briefly.
        """
        for wait_s in (0.0, *_WAITS_S):
            try:
                return open_it(*arguments)
            except OSError as error:
                if not is_short_of_descriptors(error):
                    raise
            self._held.make_room()
            if wait_s and not _is_event_loop():
                _never.wait(wait_s)
        return open_it(*arguments)

    def read_file(self, path: str) -> bytes:
        """All bytes of a small file. Raises ``FileNotFoundError``."""
        file = self._opened(OsFile, path, READ_FLAGS)
        try:
            return file.read_at(0, file.size)
        finally:
            file.close()

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file atomically and durably: temporary file, sync, rename, directory sync."""
        temporary = path + ".tmp"
        try:
            file = self._opened(OsFile, temporary, _OPEN_FLAGS | os.O_CREAT | os.O_TRUNC)
            try:
                file.append([data])
                file.sync()
            finally:
                file.close()
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.remove(temporary)
            raise
        self.sync_directory(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        """Whether a file or directory has this path."""
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted; empty if there is no such directory."""
        try:
            return sorted(self._opened(os.listdir, path))
        except FileNotFoundError:
            return []

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents; their names are on the disk on return.

        An existing directory proves nothing: its creator may have died before the sync of the parent, or
        may be another thread that has not synced yet.
        """
        with self._making:
            self._make(os.path.abspath(path))

    def _make(self, path: str) -> None:
        was_there = os.path.isdir(path)
        if was_there and path in self._named:
            return
        parent = os.path.dirname(path)
        if not was_there:
            self._make(parent)
            os.mkdir(path, DIRECTORY_MODE)
        try:
            self.sync_directory(parent)
        except PermissionError:  # above the data directory; the owner of that directory has created it
            if not was_there:
                raise
        self._named.add(path)

    def rename(self, path: str, target: str) -> None:
        """Rename a file or a directory, atomically."""
        os.replace(path, target)

    def remove(self, path: str) -> None:
        """Remove one file; do nothing if there is no such file."""
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all files below it; do nothing if there is no such directory."""
        removed = os.path.abspath(path)
        with self._making:
            self._named = {name for name in self._named if not f"{name}/".startswith(f"{removed}/")}
        with contextlib.suppress(FileNotFoundError):
            self._opened(shutil.rmtree, path)
            self.sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        descriptor = self._opened(os.open, path or ".", _DIRECTORY_FLAGS)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def tree_bytes(self, path: str) -> int:
        """The total size in bytes of all files below this directory; files that disappear meanwhile do not
        count.
        """
        total = 0
        for directory, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.path.getsize(os.path.join(directory, name))
        return total

    def free_bytes(self, path: str) -> int:
        """The free bytes that this process may use, without the system's reserve for the administrator."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize


def _is_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
