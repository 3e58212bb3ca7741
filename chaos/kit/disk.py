"""A disk of this machine that can be slow, and that can lose unsynced data.

Each change is made twice. The change to real files, without syncs, lets a restarted broker find its data. The
change to a ``FakeFilesystem`` records what a disk contains after a power loss. ``lose_power`` changes the
real files to these contents.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from raftlog.storage.filesystem import Buffer, File
from raftlog.storage.os_filesystem import OsFile
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.unsynced_filesystem import UnsyncedFilesystem

_never = threading.Event()


class UnreliableFile(OsFile):
    """An open file of an ``UnreliableDisk``."""

    __slots__ = ("_disk", "_model")

    def __init__(self, disk: UnreliableDisk, path: str, flags: int, model: Callable[[], File]) -> None:
        super().__init__(path, flags)
        self._disk = disk
        self._model = model()

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; return the position of the first byte."""
        with self._disk.lock:
            start = super().append(buffers)
            self._model.append(buffers)
            return start

    def fill(self, length: int) -> None:
        """Write zeros after the end of the content, up to ``length``; ``size`` is unchanged."""
        with self._disk.lock:
            super().fill(length)
            self._model.fill(length)

    def end_at(self, size: int) -> None:
        """Set the end of the content; zeros after this end do not count as content."""
        super().end_at(size)
        self._model.end_at(size)

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes of the file at a position."""
        with self._disk.lock:
            super().write_at(position, data)
            self._model.write_at(position, data)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self._disk.wait()
        with self._disk.lock:
            super().truncate(size)
            self._model.truncate(size)

    def sync(self) -> None:
        """Sync the file: a power loss keeps its current bytes."""
        self._disk.wait()
        with self._disk.lock:
            if not self._closing:
                self._model.sync()


class UnreliableDisk(UnsyncedFilesystem):
    """The files below ``root``, on a disk with faults; existing files count as synced.

    ``delay_s`` is added to each operation that waits for the disk. Safe for use by many threads.
    """

    __slots__ = ("_model", "_root", "delay_s", "lock")

    def __init__(self, root: str, held_files_max: int) -> None:
        super().__init__(held_files_max)
        self.delay_s = 0.0
        self.lock = threading.RLock()
        self._root = root
        self._model = FakeFilesystem()
        self._model.make_directories(root)
        for directory, folders, names in os.walk(root):
            for folder in folders:
                self._model.make_directories(f"{directory}/{folder}")
            self._model.load({f"{directory}/{name}": self.read_file(f"{directory}/{name}") for name in names})

    def wait(self) -> None:
        """Wait for ``delay_s``, the delay of an operation on the disk."""
        if self.delay_s:
            _never.wait(self.delay_s)

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises ``FileNotFoundError`` if it is missing, unless
        ``create``.
        """
        flags = os.O_RDWR | os.O_CREAT if create else os.O_RDWR
        with self.lock:
            return UnreliableFile(self, path, flags, lambda: self._model.open(path, create=create))

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file atomically and durably."""
        self.wait()
        with self.lock:
            super().replace_file(path, data)
            self._model.replace_file(path, data)

    def make_directories(self, path: str) -> None:
        """Create a directory with its parents, durably."""
        self.wait()
        with self.lock:
            super().make_directories(path)
            self._model.make_directories(path)

    def rename(self, path: str, target: str) -> None:
        """Rename a file or a directory, atomically."""
        self.wait()
        with self.lock:
            super().rename(path, target)
            self._model.rename(path, target)

    def remove(self, path: str) -> None:
        """Remove one file; does nothing if it does not exist."""
        self.wait()
        with self.lock:
            super().remove(path)
            self._model.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all its contents; does nothing if it does not exist."""
        self.wait()
        with self.lock:
            super().remove_tree(path)
            self._model.remove_tree(path)

    def sync_directory(self, path: str) -> None:
        """Sync a directory: after a power loss it has its current names."""
        self.wait()
        with self.lock:
            self._model.sync_directory(path)

    def lose_power(self, rng: random.Random) -> None:
        """Change the files of the real disk to their contents after a power loss. The disk must not be used
        afterwards.

        Threads that use the disk then wait forever, so the process must end.
        """
        self.lock.acquire()
        self._model.lose_power(rng)
        self._leave(self._root, self._model.image())

    def _leave(self, directory: str, files: dict[str, bytes]) -> None:
        names = self._model.list_directory(directory)
        for name in set(os.listdir(directory)).difference(names):
            path = Path(directory, name)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in names:
            path = Path(directory, name)
            data = files.get(str(path))
            if data is None:
                path.mkdir(exist_ok=True)
                self._leave(str(path), files)
            elif not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
