"""Models the data that a sequence of system calls has made durable, according to POSIX.

A sync of a file makes the bytes durable that were written before the sync began, but not the file's name; a
sync of a directory makes its current names durable. No other call makes anything durable. Files that existed
before the model began are durable.

``TracedOs`` replaces the module ``os`` inside the adapter: it makes the calls, and records them here. The
adapter may use only calls that are defined here, so a new call must be added to the model first.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from raftlog.storage.filesystem import Buffer


@dataclass(eq=False, slots=True)
class Node:
    """A file or a directory. ``version`` rises with every change; ``durable`` is the content on the disk."""

    path: str  # its first name
    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    version: int = 0
    durable_version: int = 0
    changed_names: dict[str, int] = field(
        default_factory=dict
    )  # names of a directory, by the version of each change

    @property
    def is_durable(self) -> bool:
        """True if all bytes written to the file, or all names in the directory, are durable."""
        return self.durable_version == self.version


@dataclass(slots=True)
class Descriptor:
    """An open file. After a failed sync of it, the content on the disk is unknown."""

    node: Node
    sync_has_failed: bool = False


class Posix:
    """Files, directories and descriptors that calls have used, and violations of rules."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.violations: list[str] = []
        self.calls = 0
        self.descriptors: dict[int, Descriptor] = {}
        self._nodes: dict[str, Node] = {}  # by the name that programs see
        self._durable_names: dict[str, Node] = {}

    def violated(self, what: str) -> None:
        """Record a violation of a rule."""
        self.violations.append(what)

    def node(self, path: str) -> Node:
        """Return the file or directory with this name; if it existed before the model began, it is
        durable.
        """
        path = os.path.abspath(path)
        found = self._nodes.get(path)
        if found is None:
            found = self._nodes[path] = self._durable_names[path] = Node(path)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found.content[:] = file.read()
                found.durable = bytes(found.content)
        return found

    def is_named_durably(self, path: str) -> bool:
        """True if the present state of this name survives a power loss: its file, or its absence."""
        path = os.path.abspath(path)
        return self._nodes.get(path) is self._durable_names.get(path)

    def durable_files(self) -> dict[str, bytes]:
        """Return the files that remain after any power loss at this moment."""
        with self.lock:
            return {
                path: node.durable
                for path, node in self._durable_names.items()
                if not self._is_directory(node)
            }

    def _is_directory(self, node: Node) -> bool:
        return os.path.isdir(node.path)

    # Effects of calls.

    def name(self, path: str, node: Node | None) -> None:
        """Let a name lead to a node; None removes the name."""
        path = os.path.abspath(path)
        parent = self.node(os.path.dirname(path))
        if node is None:
            self._nodes.pop(path, None)
        else:
            self._nodes[path] = node
        parent.version += 1
        parent.changed_names[path] = parent.version

    def move_below(self, path: str, target: str) -> None:
        """Rename all names below a renamed directory, in memory and on the disk."""
        path, target = os.path.abspath(path) + os.sep, os.path.abspath(target) + os.sep
        for names in (self._nodes, self._durable_names):
            for name in [name for name in names if name.startswith(path)]:
                names[target + name.removeprefix(path)] = names.pop(name)
        for node in self._nodes.values():
            node.path = node.path.replace(path, target, 1) if node.path.startswith(path) else node.path

    def write(self, node: Node, position: int, data: bytes) -> None:
        """Change bytes of a file in memory; the change is not durable yet."""
        if len(node.content) < position:
            node.content.extend(bytes(position - len(node.content)))
        node.content[position : position + len(data)] = data
        node.version += 1

    def cut(self, node: Node, size: int) -> None:
        """Truncate a file, or extend it with zeros."""
        del node.content[size:]
        node.content.extend(bytes(size - len(node.content)))
        node.version += 1

    def sync_of(self, node: Node) -> Callable[[], None]:
        """Begin a sync; return a function to call once the sync has succeeded."""
        version, content = node.version, bytes(node.content)
        names = {path: self._nodes.get(path) for path in node.changed_names}

        def succeeded() -> None:
            if version >= node.durable_version:
                node.durable_version, node.durable = version, content
            for path, named in names.items():
                if node.changed_names.get(path, 0) <= version:
                    node.changed_names.pop(path, None)
                if named is None:
                    self._durable_names.pop(path, None)
                else:
                    self._durable_names[path] = named

        return succeeded

    def names_below(self, path: str) -> list[str]:
        """Return the directory's name and all known names below it."""
        path = os.path.abspath(path)
        return [name for name in self._nodes if name == path or name.startswith(path + os.sep)]


class Interference:
    """Shortens reads and writes, or makes a call fail once, as a real system may at any time."""

    def __init__(self, rng: Random, short: float = 0.0) -> None:
        self._rng = rng
        self._short = short
        self.failing: dict[
            str, list[int]
        ] = {}  # errors of the next calls, by name of the call; 0 for no error

    def length(self, wanted: int) -> int:
        """The number of bytes that a call processes, from 1 to ``wanted``."""
        return self._rng.randint(1, wanted) if wanted > 1 and self._rng.random() < self._short else wanted

    def strike(self, call: str) -> None:
        """Raise the error that is planned for this call, if any."""
        errors = self.failing.get(call)
        if errors and (number := errors.pop(0)):
            raise OSError(number, f"{call} fails on purpose: {errno.errorcode[number]}")


class TracedOs:
    """The part of the module ``os`` that the adapter may use."""

    path = os.path
    O_RDONLY, O_RDWR, O_CREAT, O_TRUNC, O_EXCL = os.O_RDONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_EXCL
    O_CLOEXEC, O_DIRECTORY, O_WRONLY = os.O_CLOEXEC, os.O_DIRECTORY, os.O_WRONLY

    def __init__(self, posix: Posix, interference: Interference) -> None:
        self._posix = posix
        self._interference = interference

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"os.{name} is unknown to the trace: add it to verification/disk_calls/posix.py")

    def _enter(self, call: str) -> None:
        self._posix.calls += 1
        self._interference.strike(call)

    def _of(self, call: str, descriptor: int) -> Descriptor:
        found = self._posix.descriptors.get(descriptor)
        if found is None:
            self._posix.violated(f"{call} of a descriptor that is not open")
            raise OSError(errno.EBADF, f"{call}: descriptor {descriptor} is not open")
        return found

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        """Open a file. A new name is durable after a sync of its directory; ``O_TRUNC`` changes the file's
        bytes.
        """
        with self._posix.lock:
            self._enter("open")
            is_new = bool(flags & os.O_CREAT) and not os.path.exists(path)
            if not is_new and os.path.exists(path):
                self._posix.node(path)  # records its content before the call
            descriptor = os.open(path, flags, mode)
            if is_new:
                self._posix.name(path, Node(os.path.abspath(path)))
            node = self._posix.node(path)
            if flags & os.O_TRUNC:
                self._posix.cut(node, 0)
            self._posix.descriptors[descriptor] = Descriptor(node)
            return descriptor

    def close(self, descriptor: int) -> None:
        with self._posix.lock:
            self._enter("close")
            self._of("close", descriptor)
            del self._posix.descriptors[descriptor]
            os.close(descriptor)

    def fstat(self, descriptor: int) -> os.stat_result:
        with self._posix.lock:
            self._of("fstat", descriptor)
            return os.fstat(descriptor)

    def pwrite(self, descriptor: int, data: Buffer, position: int) -> int:
        return self._written("pwrite", descriptor, bytes(data), position)

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write buffers at a position; the write may end after any byte."""
        return self._written("pwritev", descriptor, b"".join(buffers), position)

    def _written(self, call: str, descriptor: int, data: bytes, position: int) -> int:
        with self._posix.lock:
            self._enter(call)
            node = self._of(call, descriptor).node
            written = os.pwrite(descriptor, data[: self._interference.length(len(data))], position)
            self._posix.write(node, position, data[:written])
            return written

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        with self._posix.lock:
            self._enter("pread")
            self._of("pread", descriptor)
            return os.pread(descriptor, self._interference.length(length), position)

    def preadv(self, descriptor: int, buffers: Sequence[memoryview], position: int) -> int:
        with self._posix.lock:
            self._enter("preadv")
            self._of("preadv", descriptor)
            (memory,) = buffers
            return os.preadv(descriptor, [memory[: self._interference.length(len(memory))]], position)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Change the size of a file."""
        with self._posix.lock:
            self._enter("ftruncate")
            node = self._of("ftruncate", descriptor).node
            os.ftruncate(descriptor, size)
            self._posix.cut(node, size)

    def fdatasync(self, descriptor: int) -> None:
        """Make the bytes durable that were written to the file before."""
        self._synced("fdatasync", descriptor, os.fdatasync)

    def fsync(self, descriptor: int) -> None:
        """Make the bytes of a file, or the names in a directory, durable."""
        self._synced("fsync", descriptor, os.fsync)

    def _synced(self, call: str, descriptor: int, sync: Callable[[int], None]) -> None:
        with self._posix.lock:
            file = self._of(call, descriptor)
            if file.sync_has_failed:
                self._posix.violated(f"{file.node.path} is synced again after a sync of it has failed")
            succeeded = self._posix.sync_of(file.node)
            try:
                self._enter(call)
            except OSError:
                file.sync_has_failed = True
                raise
        sync(descriptor)
        with self._posix.lock:
            succeeded()

    def replace(self, path: str, target: str) -> None:
        """Rename a file. Its bytes must be durable before the call; the names are durable after a sync of
        their directories.
        """
        with self._posix.lock:
            self._enter("replace")
            node = self._posix.node(path)
            if os.path.exists(target):
                self._posix.node(target)
            if not os.path.isdir(path) and not node.is_durable:
                self._posix.violated(f"{path} is renamed before its bytes are synced")
            os.replace(path, target)
            self._posix.name(path, None)
            self._posix.name(target, node)
            self._posix.move_below(path, target)

    rename = replace

    def walk(self, path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        return os.walk(path)

    def remove(self, path: str) -> None:
        """Remove a name; the removal is durable after the next sync of its directory."""
        with self._posix.lock:
            self._enter("remove")
            self._posix.node(path)
            os.remove(path)
            self._posix.name(path, None)

    unlink = remove

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Create a directory, whose name is durable after a sync of the parent directory."""
        with self._posix.lock:
            self._enter("mkdir")
            os.mkdir(path, mode)
            self._posix.name(path, Node(os.path.abspath(path)))

    def rmtree(self, path: str) -> None:
        """Remove a directory tree, as ``shutil.rmtree`` does."""
        with self._posix.lock:
            self._enter("rmtree")
            for folder, _, names in os.walk(path):
                for name in names:
                    self._posix.node(os.path.join(folder, name))
            self._posix.node(path)
            shutil.rmtree(path)
            for name in sorted(self._posix.names_below(path), reverse=True):
                self._posix.name(name, None)

    def listdir(self, path: str) -> list[str]:
        self._enter("listdir")
        return os.listdir(path)

    def statvfs(self, path: str) -> os.statvfs_result:
        self._enter("statvfs")
        return os.statvfs(path)
