"""Stores an archive in a directory, or by fsspec in S3, Google Cloud, Azure or HDFS.

Decides: how creating a file fails if the file exists. Leaves to others: requests to stores (fsspec), and the
content of files.

A file is whole as soon as it exists, and creating it again fails. A directory ensures this by a hard link
from a synced temporary file; S3 by ``If-None-Match``, Google Cloud and Azure by similar conditions; HDFS by
renaming a temporary file, which fails if the name exists. For other stores fsspec checks first and then
writes, so that two drivers could both create a manifest: the addresses of such stores are refused.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from spark_io.errors import ArchiveUnreachable

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_TEMPORARY = ".tmp-"
_CREATES_ONCE: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")
_RENAMES_ONCE: Final = ("hdfs", "webhdfs")


class Storage(Protocol):
    """The files of one archive, by paths below its address."""

    def create(self, path: str, data: bytes) -> None:
        """Write a file, durable on return. Raises ``FileExistsError`` without touching the existing file."""

    def read(self, path: str) -> bytes:
        """Return all bytes of a file. Raises ``FileNotFoundError``."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder in order; an empty list if the folder does not exist."""

    def unfinished(self, folder: str) -> list[str]:
        """The names of temporary files in a folder, whose writer still writes or was killed."""

    def exists(self, path: str) -> bool:
        """Whether there is a file at this path."""

    def modified_s(self, path: str) -> float:
        """The time at which a file was written, in seconds since 1970. Raises ``FileNotFoundError``."""

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is no error."""


def open_storage(address: str) -> Storage:
    """The storage of an address: a path, or a URI such as ``s3://bucket/prefix``.

    Raises ``ArchiveUnreachable`` for a store that cannot refuse to create a file twice, and if fsspec or its
    package for this kind of address is missing.
    """
    scheme, found, rest = address.partition("://")
    if not found:
        return DirectoryStorage(Path(address))
    if scheme == "file":
        return DirectoryStorage(Path(rest))
    if scheme not in (*_CREATES_ONCE, *_RENAMES_ONCE):
        raise ArchiveUnreachable(
            f"archives at {scheme}:// cannot be written: two drivers could create the same manifest. Use a "
            f"directory, or one of {', '.join(one + '://' for one in (*_CREATES_ONCE[:-1], *_RENAMES_ONCE))}"
        )
    try:
        import fsspec

        filesystem, root = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError, OSError) as error:
        raise ArchiveUnreachable(
            f"archives at {scheme}:// need more packages ({error}): pip install fsspec and its package for "
            f"{scheme}, such as s3fs"
        ) from error
    return HdfsStorage(filesystem, root) if scheme in _RENAMES_ONCE else ObjectStorage(filesystem, root)


def has_created(storage: Storage, path: str, data: bytes) -> bool:
    """Create a file. False if a file with other content exists at this path.

    An existing file with equal bytes counts as created by this call: a store may repeat a request whose
    answer was lost.
    """
    try:
        storage.create(path, data)
    except FileExistsError:
        return storage.read(path) == data
    return True


class DirectoryStorage:
    """A directory of this machine, which may be mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, path: str, data: bytes) -> None:
        """Write a synced temporary file and link it to its path; see ``Storage``."""
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{_TEMPORARY}{uuid4().hex}")
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        for folder in (target.parent, *target.parent.parents):
            _sync(folder)
            if folder == self._root:
                break

    def read(self, path: str) -> bytes:
        """Return all bytes of a file; see ``Storage``."""
        return (self._root / path).read_bytes()

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder without temporary files; see ``Storage``."""
        return [name for name in self._all(folder) if not name.startswith(_TEMPORARY)]

    def unfinished(self, folder: str) -> list[str]:
        """Return the names of the temporary files in a folder; see ``Storage``."""
        return [name for name in self._all(folder) if name.startswith(_TEMPORARY)]

    def exists(self, path: str) -> bool:
        """Whether there is a file at the path; see ``Storage``."""
        return (self._root / path).is_file()

    def modified_s(self, path: str) -> float:
        """The modification time of a file in seconds since 1970; see ``Storage``."""
        return (self._root / path).stat().st_mtime

    def remove(self, path: str) -> None:
        """Remove a file if it exists; see ``Storage``."""
        (self._root / path).unlink(missing_ok=True)

    def _all(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []


class ObjectStorage:
    """A prefix of an object store."""

    def __init__(self, filesystem: AbstractFileSystem, root: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")

    def create(self, path: str, data: bytes) -> None:
        """Write an object that does not exist yet; see ``Storage``."""
        self._filesystem.pipe_file(f"{self._root}/{path}", data, mode="create")

    def read(self, path: str) -> bytes:
        """Return all bytes of an object; see ``Storage``."""
        return bytes(self._filesystem.cat_file(f"{self._root}/{path}"))

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; see ``Storage``."""
        self._filesystem.invalidate_cache()
        try:
            found = self._filesystem.ls(f"{self._root}/{folder}", detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def unfinished(self, folder: str) -> list[str]:
        """Return an empty list; see ``Storage``. An object is whole as soon as it can be seen."""
        return []

    def exists(self, path: str) -> bool:
        """Whether there is an object at the path; see ``Storage``."""
        self._filesystem.invalidate_cache()
        return bool(self._filesystem.exists(f"{self._root}/{path}"))

    def modified_s(self, path: str) -> float:
        """The modification time of an object in seconds since 1970; see ``Storage``."""
        return float(self._filesystem.modified(f"{self._root}/{path}").timestamp())

    def remove(self, path: str) -> None:
        """Remove an object if it exists; see ``Storage``."""
        with suppress(FileNotFoundError):
            self._filesystem.rm_file(f"{self._root}/{path}")


class HdfsStorage(ObjectStorage):
    """A directory of HDFS, by libhdfs or over HTTP."""

    def create(self, path: str, data: bytes) -> None:
        """Write a temporary file and rename it to its path; see ``Storage``."""
        target = f"{self._root}/{path}"
        temporary = f"{target.rpartition('/')[0]}/{_TEMPORARY}{uuid4().hex}"
        with self._filesystem.open(temporary, "wb") as file:
            file.write(data)
        if self._is_renamed(temporary, target):
            return
        self._filesystem.rm_file(temporary)
        if not self.exists(path):
            raise OSError(f"HDFS has not renamed {temporary} to {target}; see the log of its name node")
        raise FileExistsError(target)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder without temporary files; see ``Storage``."""
        return [name for name in super().names(folder) if not name.startswith(_TEMPORARY)]

    def unfinished(self, folder: str) -> list[str]:
        """Return the names of the temporary files in a folder; see ``Storage``."""
        return [name for name in super().names(folder) if name.startswith(_TEMPORARY)]

    def _is_renamed(self, temporary: str, target: str) -> bool:
        """Rename a file; False if the target exists. ``WebHDFS.mv`` ignores the answer, so it is not used."""
        call = getattr(self._filesystem, "_call", None)
        if call is not None:
            return bool(call("RENAME", method="put", path=temporary, destination=target).json()["boolean"])
        try:
            self._filesystem.mv(temporary, target)
        except OSError:
            return False
        return True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
