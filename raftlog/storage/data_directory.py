"""The directory of a broker's data: its owner, and the lock that keeps other processes out.

<data>/raftlog.json    cluster id, broker id, format version; kept twice (``twin_file``)
<data>/lock            locked (flock) while the broker runs; contains its pid

The directory itself is locked, too: a lock file can be removed and created again as another file.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
from types import TracebackType

import msgspec

from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.os_filesystem import FILE_MODE, OsFilesystem
from raftlog.types import NodeId

_log = logging.getLogger("raftlog.storage")

IDENTITY_NAME = "raftlog.json"
LOCK_NAME = "lock"
FORMAT_VERSION = 1


class DataDirectoryRefused(Exception):
    """The directory must not be used: the message says why, and what the operator can do."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``raftlog.json``."""

    cluster_id: str
    node_id: int
    format_version: int


class DataDirectory:
    """An open, locked data directory. Close it, or use it as a context manager."""

    def __init__(self, path: str, identity: Identity, locks: tuple[int, ...]) -> None:
        self.path = path
        self.identity = identity
        self._locks = locks

    @classmethod
    def open(
        cls, path: str, *, cluster_id: str, node_id: NodeId, filesystem: Filesystem | None = None
    ) -> DataDirectory:
        """Lock the directory and check its identity; write the identity if the directory is new.

        Raises ``DataDirectoryRefused`` if another process holds a lock, or if the directory belongs to
        another broker.
        """
        filesystem = filesystem or OsFilesystem()
        filesystem.make_directories(path)
        locks = _take_locks(path)
        try:
            wanted = Identity(cluster_id=cluster_id, node_id=node_id, format_version=FORMAT_VERSION)
            _check_identity(filesystem, path, wanted)
            _warn_of_readers(path)
        except BaseException:
            _close(locks)
            raise
        return cls(path, wanted, locks)

    def close(self) -> None:
        """Release the locks. Idempotent."""
        _close(self._locks)
        self._locks = ()

    def __enter__(self) -> DataDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _warn_of_readers(path: str) -> None:
    mode = os.stat(path).st_mode
    if mode & 0o077:
        _log.warning(
            "%s is accessible to other users (mode %03o); run: chmod -R go= %s", path, mode & 0o777, path
        )


def found_identity(filesystem: Filesystem, path: str) -> Identity | None:
    """The broker that owns this directory; None if one of the two copies of the file is damaged.

    Writes nothing.
    """
    if twin_file.damaged(filesystem, path, IDENTITY_NAME):
        return None
    return twin_file.load(filesystem, path, IDENTITY_NAME, Identity)


def is_in_use(path: str) -> bool:
    """Whether a broker runs on this directory. Writes nothing."""
    return any(_is_locked(held) for held in (f"{path}/{LOCK_NAME}", path))


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _take_locks(path: str) -> tuple[int, ...]:
    """Take the locks; return their descriptors. The system releases the locks when the process ends."""
    name = f"{path}/{LOCK_NAME}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    locks = file, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for held, descriptor in zip((name, path), locks, strict=True):
        if not _lock(descriptor, fcntl.LOCK_EX):
            holder = os.pread(file, 32, 0).decode("ascii", "replace").strip() or "unknown"
            _close(locks)
            raise DataDirectoryRefused(
                f"{held} is held by process {holder}: another broker runs on this directory; "
                "stop that process or give this one its own directory"
            )
    with contextlib.suppress(OSError):  # the pid is only information for people
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return locks


def _lock(descriptor: int, kind: int) -> bool:
    """Take a lock; return False if another process holds it.

    NFS cannot lock directories: there only the lock file counts.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise
    return True


def _close(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _check_identity(filesystem: Filesystem, path: str, wanted: Identity) -> None:
    try:
        found = twin_file.load(filesystem, path, IDENTITY_NAME, Identity)
    except LogCorrupt as error:
        raise DataDirectoryRefused(
            f"{error}; restore one of them, or remove the directory if its data is not needed"
        ) from None
    if found is None:
        twin_file.keep(filesystem, path, IDENTITY_NAME, wanted)
        return
    if found.format_version > FORMAT_VERSION:
        raise DataDirectoryRefused(
            f"{path} has format {found.format_version}, but this release supports {FORMAT_VERSION}: "
            "use a newer release"
        )
    if (found.cluster_id, found.node_id) != (wanted.cluster_id, wanted.node_id):
        raise DataDirectoryRefused(
            f"{path} belongs to broker {found.node_id} of cluster {found.cluster_id!r}, but this is broker "
            f"{wanted.node_id} of cluster {wanted.cluster_id!r}: give each broker its own directory"
        )
