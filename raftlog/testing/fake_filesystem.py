"""A filesystem in memory that can lose power.

The filesystem keeps two views of every file and every directory: the content that programs see, and the
content on the disk. Only a sync of a file brings its bytes to the disk, and only a sync of a directory its
names. ``lose_power`` keeps the content of the disk and a random selection of the unsynced changes.
Independently of each other, each write is kept, dropped, cut short or kept with holes, and each name is kept
or dropped. Renames of directories are journalled: of the renames whose parents are not both synced, a random
prefix survives, with all files below the directories.

A sync that fails drops the file's unsynced changes, like a kernel that marks the pages clean. Programs still
see these changes until the power is lost, and later syncs succeed, but the changes reach the disk only if
they are written again.

``on_wait`` is called for every operation that waits for a disk; such operations are forbidden on an event
loop's thread. Operations that wait for no disk are allowed there: opening and creating a file, appending and
writing in place (into the page cache), and reading.

Faults: no room (``capacity_bytes``), reads, syncs and opens that fail, flipped bits, a crash at the n-th
change. Tests and the simulator use this filesystem. It passes the conformance suite of ``OsFilesystem``.
"""

from __future__ import annotations

import errno
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from raftlog.storage.filesystem import Buffer, File
from raftlog.storage.held_files import HeldFiles
from raftlog.testing.stored_file import StoredFile

HELD_FILES_MAX = 1 << 16
_ROOM_BYTES = 1 << 40  # of a disk without ``capacity_bytes``


class PowerLost(BaseException):
    """The machine lost power at this change, as ``crash_after_changes`` demanded."""


class FakeFile:
    """An open file of a ``FakeFilesystem``; every operation fails after a power loss."""

    def __init__(self, filesystem: FakeFilesystem, path: str, node: StoredFile) -> None:
        self._filesystem = filesystem
        self._path = path
        self._node = node
        self._incarnation = filesystem.incarnation
        self._closed = False
        self._size = len(node.seen)

    @property
    def path(self) -> str:
        """The path that the file was opened with."""
        return self._path

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; return the position of the first byte."""
        start = self._size
        self._check_open()  # after a power loss nothing is undone
        try:
            self._write(start, b"".join(buffers))
        except OSError:
            if len(self._node.seen) > start:
                self._node.write(start, None)
            raise
        return start

    def fill(self, length: int) -> None:
        """Write zeros after the end of the file. ``size`` does not change."""
        size = self._size
        self._write(size, bytes(length))
        self._size = size

    def end_at(self, size: int) -> None:
        """Set ``size``. Zeros that ``fill`` has written after this position do not count as content."""
        self._size = size

    def read_at(self, position: int, length: int) -> bytes:
        """Read at most ``length`` bytes from ``position``."""
        self._check_open()
        self._filesystem.check_read(self._path)
        return bytes(self._node.seen[position : position + length])

    def read_into(self, memory: memoryview, position: int) -> int:
        """Fill ``memory`` from ``position`` on; return the number of bytes."""
        data = self.read_at(position, len(memory))
        memory[: len(data)] = data
        return len(data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place."""
        self._write(position, bytes(data))

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self._check_open()
        self._filesystem.on_wait("cut", self._path)
        self._filesystem.count_change()
        self._node.write(size, None)
        self._size = size

    def sync(self) -> None:
        """Bring the bytes to the disk.

        After a failure the page cache counts them as synced; see the module.
        """
        if self._closed:
            return
        self._check_open()
        self._filesystem.on_wait("sync", self._path)
        self._filesystem.count_change()
        self._filesystem.syncs += 1
        if self._filesystem.fails_sync(self._path):
            self._node.unsynced.clear()
            raise OSError(errno.EIO, "sync fails on purpose", self._path)
        if self._filesystem.lies_about_syncs:
            return
        self._node.sync()

    def descriptor(self) -> int:
        """Raise ``OSError``: a fake file has no descriptor."""
        raise OSError(errno.EBADF, "a fake file has no descriptor", self._path)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._closed = True

    def _write(self, position: int, data: bytes) -> None:
        self._check_open()
        self._filesystem.count_change()
        self._filesystem.take_room(max(0, position + len(data) - len(self._node.seen)), self._path)
        self._node.write(position, data)
        self._size = max(self._size, position + len(data))

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if self._incarnation != self._filesystem.incarnation:
            raise OSError(errno.EIO, "the power was lost while the file was open", self._path)


@dataclass(slots=True)
class _Move:
    """A renamed directory; the rename is on the disk once both parents are synced."""

    path: str
    target: str
    unsynced: set[str]


class FakeFilesystem:
    """A filesystem that can lose power. The generator given to ``lose_power`` decides all random choices."""

    def __init__(self) -> None:
        self.incarnation = 0
        self.held = HeldFiles(HELD_FILES_MAX)
        self.syncs = 0
        self.changes = 0
        self.capacity_bytes: int | None = None
        self.crash_after_changes: int | None = None
        self.lies_about_syncs = False
        self.fails_read: Callable[[str], bool] = _never
        self.fails_open: Callable[[str], bool] = _never  # as without free descriptors
        self.fails_sync: Callable[[str], bool] = _never
        self.on_wait: Callable[[str, str], None] = _not_told
        self._seen: dict[str, StoredFile] = {}
        self._disk: dict[str, StoredFile] = {}
        self._paths_in: dict[str, dict[str, None]] = {}  # paths that may be seen or on the disk
        self._unsynced_in: dict[str, dict[str, None]] = {}  # paths whose two views may differ
        # paths in the order in which they changed, by directory: as programs see it, or on the disk
        self._changed_names: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
        self._directories: set[str] = {"", "/"}
        self._moves: list[_Move] = []

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing. Raises ``FileNotFoundError`` unless ``create``."""
        if self.fails_open(path):
            raise OSError(errno.EMFILE, "too many open files on purpose", path)
        node = self._seen.get(path)
        if node is None:
            if not create or _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.count_change()
            node = StoredFile()
            self._name(path, node)
        return FakeFile(self, path, node)

    def hold(self, file: File) -> bool:
        """Keep ``file`` open while it is among the most recently used files; return whether it is."""
        return self.held.hold(file)

    def let_go(self, file: File) -> None:
        """Stop keeping ``file`` open."""
        self.held.let_go(file)

    def read_file(self, path: str) -> bytes:
        """Return all bytes of a small file."""
        file = self.open(path)
        return file.read_at(0, file.size)

    def replace_file(self, path: str, data: bytes) -> None:
        """Write a temporary file, sync and rename it, sync the directory; power may fail after each step."""
        temporary = path + ".tmp"
        self.remove(temporary)
        try:
            file = self.open(temporary, create=True)
            file.append([data])
            file.sync()
        except OSError:
            self.remove(temporary)
            raise
        self.count_change()
        self._name(path, self._unname(temporary))
        self.sync_directory(_parent(path))

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""
        return path in self._seen or path in self._directories

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        files = [name for name in self._paths_in.get(path, ()) if name in self._seen]
        known = [name for name in self._directories if name and name != path and _parent(name) == path]
        return sorted({name.rpartition("/")[2] for name in (*files, *known)})

    def make_directories(self, path: str) -> None:
        """Create a directory and its parents, which are durable at once."""
        while path not in self._directories:
            self.on_wait("make", path)
            self._directories.add(path)
            path = _parent(path)

    def rename(self, path: str, target: str) -> None:
        """Rename a file or a directory.

        Until the directories are synced, a power loss may keep the removal of the old name of a file without
        the new name, or the reverse. A directory keeps either both changes or neither.
        """
        self.on_wait("rename", path)
        self.count_change()
        if path not in self._directories:
            self._name(target, self._unname(path))
            return
        if self.list_directory(target):
            raise OSError(errno.ENOTEMPTY, "the directory is not empty", target)
        if _parent(target) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", target)
        self._move_directory(path, target)
        self._moves.append(_Move(path, target, {_parent(path), _parent(target)}))

    def _move_directory(self, path: str, target: str) -> None:
        """Move a directory in the view of programs."""
        self._move_names(self._seen, path, target)
        moved = {name for name in self._directories if name == path or name.startswith(path + "/")}
        self._directories = self._directories - moved | {target + name[len(path) :] for name in moved}

    def _move_names(self, names: dict[str, StoredFile], path: str, target: str) -> None:
        for name in [name for name in names if name.startswith(path + "/")]:
            moved = target + name[len(path) :]
            names[moved] = names.pop(name)
            self._paths_in.setdefault(_parent(moved), {})[moved] = None
            self._note_change(name, on_disk=True)
            self._note_change(moved, on_disk=True)

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is no error."""
        if path in self._seen:
            self.on_wait("remove", path)
            self.count_change()
            self._unname(path)

    def remove_tree(self, path: str) -> None:
        """Remove the files one by one, then the directory, durably; the power may fail after each step."""
        self.on_wait("remove", path)
        for name in sorted(name for name in self._seen if name.startswith(path + "/")):
            self.remove(name)
        self.count_change()
        for name in [name for name in self._disk if name.startswith(path + "/")]:
            del self._disk[name]
            self._note_change(name, on_disk=True)
        self._directories -= {
            name for name in self._directories if name == path or name.startswith(path + "/")
        }

    def sync_directory(self, path: str) -> None:
        """Bring the names in a directory to the disk."""
        self.on_wait("sync", path)
        self.count_change()
        if self.lies_about_syncs:
            return
        for move in list(self._moves):
            move.unsynced.discard(path)
            if not move.unsynced or f"{path}/".startswith(f"{move.target}/"):
                self._moves.remove(move)
                self._move_names(self._disk, move.path, move.target)
        for name in self._unsynced_in.pop(path, ()):
            _set(self._disk, name, self._seen.get(name))
            self._changed_names[path, True].append(name)
            if name not in self._seen:
                self._paths_in[path].pop(name, None)

    def tree_bytes(self, path: str) -> int:
        """Bytes of all files below a directory."""
        return sum(len(node.seen) for name, node in self._seen.items() if name.startswith(path + "/"))

    def free_bytes(self, path: str) -> int:
        """The bytes that ``capacity_bytes`` leaves for further content."""
        capacity = _ROOM_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return max(0, capacity - self.used_bytes)

    def paths(self) -> list[str]:
        """All files that programs see, sorted."""
        return sorted(self._seen)

    def changed_names(self, directory: str, *, durable: bool) -> Sequence[str]:
        """The paths in a directory that have changed, in order: as programs see them, or on the disk.

        The list grows with every change.
        """
        return self._changed_names[directory, durable]

    def stored(self, path: str, *, durable: bool) -> StoredFile | None:
        """The file with this name, or None: as programs see it, or as the disk has it."""
        return (self._disk if durable else self._seen).get(path)

    def stored_in(self, directory: str, *, durable: bool, suffix: str = "") -> dict[str, StoredFile]:
        """The files of a directory by name, sorted: as programs see them, or as the disk has them."""
        names = self._disk if durable else self._seen
        known = sorted(path for path in self._paths_in.get(directory, ()) if path.endswith(suffix))
        return {name.rpartition("/")[2]: names[name] for name in known if name in names}

    def lose_power(self, rng: random.Random) -> None:
        """Keep the content of the disk and a random part of unsynced changes; open files fail from now on."""
        self._settle_moves(rng)
        for name in sorted({*self._seen, *self._disk}):
            if self._seen.get(name) is not self._disk.get(name) and rng.random() < 0.5:
                _set(self._disk, name, self._seen.get(name))
        done: set[int] = set()
        for name in sorted(self._disk):
            node = self._disk[name]
            if id(node) not in done:
                done.add(id(node))
                node.lose_power(rng)
        self._seen = dict(self._disk)
        for directory, paths in self._paths_in.items():
            self._changed_names[directory, False] += paths
            self._changed_names[directory, True] += paths
        self.restart()

    def _settle_moves(self, rng: random.Random) -> None:
        moves, self._moves = self._moves, []
        kept = rng.randint(0, len(moves)) if moves else 0
        for move in moves[:kept]:
            self._move_names(self._disk, move.path, move.target)
        for move in reversed(moves[kept:]):
            self._move_directory(move.target, move.path)

    def restart(self) -> None:
        """Restart the process, not the machine: open files fail from now on, no byte is lost."""
        self.incarnation += 1
        self.crash_after_changes = None

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Flip a bit of a file, as programs see it and on the disk. Not counted as a change."""
        node = self._seen[path]
        for content in (node.seen, node.disk):
            if position < len(content):
                content[position] ^= 1 << bit

    def overwrite(self, path: str, data: bytes | None) -> None:
        """Replace a file, or remove it (None), as programs see it and on the disk.

        Not counted as a change.
        """
        self._seen.pop(path, None)
        self._disk.pop(path, None)
        self._note_change(path, on_disk=True)
        if data is not None:
            self._disk[path] = StoredFile(bytearray(data), bytearray(data))
            self._name(path, self._disk[path])

    def image(self) -> dict[str, bytes]:
        """All files as programs see them."""
        return {path: bytes(node.seen) for path, node in self._seen.items()}

    def load(self, image: dict[str, bytes]) -> None:
        """Add these files, durably."""
        for path, data in image.items():
            self.make_directories(_parent(path))
            self.overwrite(path, data)

    def _name(self, path: str, node: StoredFile) -> None:
        """Let programs find this file by this name."""
        self._seen[path] = node
        self._paths_in.setdefault(_parent(path), {})[path] = None
        self._note_change(path)

    def _unname(self, path: str) -> StoredFile:
        """Remove a name in the view of programs."""
        self._note_change(path)
        return self._seen.pop(path)

    def _note_change(self, path: str, *, on_disk: bool = False) -> None:
        """Note that a path names another file or no file: for programs, with ``on_disk`` also on the disk."""
        directory = _parent(path)
        self._unsynced_in.setdefault(directory, {})[path] = None
        self._changed_names[directory, False].append(path)
        if on_disk:
            self._changed_names[directory, True].append(path)

    def count_change(self) -> None:
        """Count one change. Raise ``PowerLost`` at the change given in ``crash_after_changes``."""
        self.changes += 1
        if self.crash_after_changes is not None:
            self.crash_after_changes -= 1
            if self.crash_after_changes < 0:
                raise PowerLost

    @property
    def used_bytes(self) -> int:
        """Bytes of all files, as ``capacity_bytes`` counts them."""
        return sum(len(node.seen) for node in self._seen.values())

    def take_room(self, growth_bytes: int, path: str) -> None:
        """Raise ENOSPC if the filesystem has no room for ``growth_bytes`` more bytes."""
        room = self.capacity_bytes
        if growth_bytes and room is not None and self.used_bytes + growth_bytes > room:
            raise OSError(errno.ENOSPC, "no room on purpose", path)

    def check_read(self, path: str) -> None:
        """Raise EIO if reads of this path must fail."""
        if self.fails_read(path):
            raise OSError(errno.EIO, "read fails on purpose", path)


def _never(path: str) -> bool:
    return False


def _not_told(operation: str, path: str) -> None:
    """Ignore an operation that waits for the disk."""


@lru_cache(maxsize=1 << 14)
def _parent(path: str) -> str:
    return path.rpartition("/")[0] or ("/" if path.startswith("/") else "")


def _set(names: dict[str, StoredFile], name: str, node: StoredFile | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node
