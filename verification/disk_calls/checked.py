"""Wraps a filesystem, and checks that the system calls of every operation fulfil the operation's contract.

``checked_disk`` puts the traced ``os`` into the adapter and returns a filesystem for any test: the
conformance suite, a log, whole brokers. ``Posix.violations`` lists the violations.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from unittest import mock

from raftlog.storage import os_filesystem
from raftlog.storage.filesystem import Buffer, File, Filesystem
from verification.disk_calls.posix import Interference, Node, Posix, TracedOs


class CheckedFile:
    """An open file whose operations are checked."""

    def __init__(self, file: File, posix: Posix) -> None:
        self._file = file
        self._posix = posix
        self._node = posix.descriptors[file.descriptor()].node
        self._is_closed = False
        self._check_size("open")

    @property
    def path(self) -> str:
        """The path at which the file was opened."""
        return self._file.path

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._file.size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Append buffers; checks that they are at the end, and that earlier bytes are unchanged. A failed
        append changes nothing.
        """
        before, data = bytes(self._node.content[: self.size]), b"".join(buffers)
        zeros = bytes(self._node.content[len(before) + len(data) :])
        try:
            start = self._file.append(buffers)
        except OSError:
            self._expect(bytes(self._node.content) == before, "a failed append leaves the file unchanged")
            self._check_size("a failed append")
            raise
        self._expect(start == len(before), "append returns the position of its bytes")
        self._expect(
            bytes(self._node.content) == before + data + zeros, "append writes all its bytes at the end"
        )
        self._check_size("append")
        return start

    def fill(self, length: int) -> None:
        """Extend the file; checks that only zeros are added."""
        size, before = self.size, bytes(self._node.content)
        self._file.fill(length)
        after = bytes(self._node.content)
        self._expect(after.startswith(before[:size]), "filling changes no byte")
        self._expect(self.size == size, "filling leaves the size unchanged")
        self._check_size("fill")

    def end_at(self, size: int) -> None:
        """End the file's content at ``size``; checks that all bytes after ``size`` are zeros."""
        self._file.end_at(size)
        self._check_size("end_at")

    def read_at(self, position: int, length: int) -> bytes:
        """Read a range; checks that all its bytes are returned, even if the system reads it in parts."""
        data = self._file.read_at(position, length)
        self._expect(
            data == self._node.content[position : position + length], "a read returns all bytes of the range"
        )
        return data

    def read_into(self, memory: memoryview, position: int) -> int:
        """Read a range into memory; checks that all its bytes are read, even if the system reads it
        in parts.
        """
        count = self._file.read_into(memory, position)
        self._expect(
            memory[:count] == self._node.content[position : position + len(memory)],
            "a read returns all bytes of the range",
        )
        return count

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes; checks that exactly these bytes are changed."""
        expected = bytearray(self._node.content)
        expected[position : position + len(data)] = data
        self._file.write_at(position, data)
        self._expect(self._node.content == expected, "write_at writes all its bytes, and no others")
        self._check_size("write_at")

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._expect(len(self._node.content) == size, "truncate cuts the file")
        self._check_size("truncate")

    def sync(self) -> None:
        """Sync the file; checks that all bytes written before are durable, unless the call raises."""
        version, failed = self._node.version, self._failures()
        self._file.sync()
        if not self._is_closed:
            self._expect(self._node.durable_version >= version, "sync returns when all is on the disk")
            self._expect(self._failures() == failed, "a sync that has failed raises")

    def descriptor(self) -> int:
        """Return the file descriptor, an integer."""
        return self._file.descriptor()

    def close(self) -> None:
        """Close the file; may be called again."""
        self._is_closed = True
        self._file.close()

    def _failures(self) -> int:
        files = list(self._posix.descriptors.values())
        return sum(file.node is self._node and file.sync_has_failed for file in files)

    def _check_size(self, what: str) -> None:
        is_right = not any(self._node.content[self.size :]) and self.size <= len(self._node.content)
        self._expect(is_right, f"{what} keeps the size equal to that of the system, except for zeros")

    def _expect(self, holds: bool, rule: str) -> None:
        if not holds:
            self._posix.violated(f"{self.path}: {rule}")


class CheckedFilesystem:
    """A filesystem whose operations are checked."""

    def __init__(self, filesystem: Filesystem, posix: Posix) -> None:
        self._filesystem = filesystem
        self._posix = posix

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; checks that the bytes of an existing file are unchanged."""
        before = bytes(self._posix.node(path).content) if os.path.exists(path) else b""
        file = CheckedFile(self._filesystem.open(path, create=create), self._posix)
        self._expect(bytes(file._node.content) == before, path, "opening changes no byte")
        return file

    def hold(self, file: File) -> bool:
        return self._filesystem.hold(file)

    def let_go(self, file: File) -> None:
        self._filesystem.let_go(file)

    def read_file(self, path: str) -> bytes:
        data = self._filesystem.read_file(path)
        self._expect(data == self._posix.node(path).content, path, "read_file returns all bytes")
        return data

    def replace_file(self, path: str, data: bytes) -> None:
        """Replace a file; checks that the new bytes are durable afterwards, and that a failure keeps the old
        bytes.
        """
        old = self._posix.node(path) if os.path.exists(path) else None
        before = None if old is None else bytes(old.content)
        try:
            self._filesystem.replace_file(path, data)
        except OSError:
            is_new = os.path.exists(path) and self._posix.node(path) is not old
            self._expect(
                is_new or self._content(path) == before, path, "a failed replacement leaves the old file"
            )
            self._check_no_temporary_file(path)
            raise
        new = self._posix.node(path)
        self._expect(
            old is None or bytes(old.content) == before, path, "a replacement writes beside the old file"
        )
        self._expect(bytes(new.content) == data, path, "a replacement has all its bytes")
        self._expect(new.is_durable, path, "a replacement's bytes are on the disk")
        self._expect(self._posix.is_named_durably(path), path, "a replacement's name is on the disk")
        self._check_no_temporary_file(path)

    def exists(self, path: str) -> bool:
        """Return True if the file or directory exists."""
        return self._filesystem.exists(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return self._filesystem.list_directory(path)

    def make_directories(self, path: str) -> None:
        """Create directories; checks that the names of all new directories are durable afterwards."""
        self._filesystem.make_directories(path)
        self._expect(os.path.isdir(path), path, "make_directories makes them")
        for parent in _with_parents(path):
            self._expect(
                self._posix.is_named_durably(parent), parent, "a new directory's name is on the disk"
            )

    def rename(self, path: str, target: str) -> None:
        """Rename a file; checks that it has the new name."""
        node = self._posix.node(path)
        self._filesystem.rename(path, target)
        self._expect(self._posix.node(target) is node, target, "rename moves the file")

    def remove(self, path: str) -> None:
        """Remove a file; checks that its name does not exist afterwards."""
        self._filesystem.remove(path)
        self._expect(not os.path.exists(path), path, "remove removes")

    def remove_tree(self, path: str) -> None:
        """Remove a directory and everything in it; checks that the removal is durable."""
        self._filesystem.remove_tree(path)
        self._expect(not os.path.exists(path), path, "remove_tree removes")
        self._expect(
            self._posix.is_named_durably(path), path, "a removed directory's name is gone on the disk"
        )

    def sync_directory(self, path: str) -> None:
        """Sync a directory; checks that its current names are durable."""
        node = self._posix.node(path)
        version = node.version
        self._filesystem.sync_directory(path)
        self._expect(
            node.durable_version >= version, path, "names are on the disk after a sync of the directory"
        )

    def tree_bytes(self, path: str) -> int:
        return self._filesystem.tree_bytes(path)

    def free_bytes(self, path: str) -> int:
        return self._filesystem.free_bytes(path)

    def _content(self, path: str) -> bytes | None:
        return bytes(self._posix.node(path).content) if os.path.exists(path) else None

    def _check_no_temporary_file(self, path: str) -> None:
        name = os.path.basename(path)
        beside = [
            other for other in os.listdir(os.path.dirname(path) or ".") if other.startswith(name + ".tmp")
        ]
        self._expect(not beside, path, f"a replacement leaves no other file: {beside}")

    def _expect(self, holds: bool, path: str, rule: str) -> None:
        if not holds:
            self._posix.violated(f"{path}: {rule}")


def _with_parents(path: str) -> Iterator[str]:
    path = os.path.abspath(path)
    while path != os.path.dirname(path):
        yield path
        path = os.path.dirname(path)


@dataclass(frozen=True, slots=True)
class CheckedDisk:
    """Parts of a checked run: a filesystem, the injected failures of calls, and the model with its
    violations.

    ``system`` makes traced system calls without the adapter, as another process would.
    """

    filesystem: Filesystem
    system: TracedOs
    interference: Interference
    posix: Posix

    def open_files(self) -> list[Node]:
        """Return the open regular files."""
        return [file.node for file in self.posix.descriptors.values()]


@contextlib.contextmanager
def checked_disk(seed: int, short: float = 0.0) -> Iterator[CheckedDisk]:
    """Yield the real filesystem with checks.

    ``short`` is the share of reads and writes that process fewer bytes than requested, from 0 to 1.
    """
    posix, interference = Posix(), Interference(Random(seed), short)
    traced = TracedOs(posix, interference)
    instead = {"os": traced, "_sync_data": traced.fdatasync, "shutil": SimpleNamespace(rmtree=traced.rmtree)}
    with contextlib.ExitStack() as stack:
        for name, value in instead.items():
            stack.enter_context(mock.patch.object(os_filesystem, name, value))
        yield CheckedDisk(
            CheckedFilesystem(os_filesystem.OsFilesystem(held_files_max=1), posix),
            traced,
            interference,
            posix,
        )
