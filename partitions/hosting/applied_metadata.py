"""Stores on disk the version of the newest metadata that this broker has applied.

Decides: which metadata may delete folders. Metadata of another bootstrap may not, nor metadata older than the
applied version. Leaves to others: the choice of folders (``replica_manager``).

``<data>/applied_metadata`` holds the bootstrap id, the version, and whether confirmed metadata was ever older
than the applied version. In that case a part of the metadata has been lost, and later versions prove nothing.
The file has two copies (``raftlog.storage.twin_file``).
"""

from __future__ import annotations

from typing import Final

import msgspec

from partitions.metadata.image import MetadataImage
from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem, is_disk_full

APPLIED_FILE: Final = "applied_metadata"


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """Content of the file ``applied_metadata``."""

    bootstrap_id: str
    version: int
    was_lost: bool = False


class AppliedMetadata:
    """The newest metadata version that was applied with one disk. The methods wait for the disk."""

    def __init__(self, filesystem: Filesystem, data_directory: str) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._known: Applied | None = None  # content of the file, once read

    def objection(self, image: MetadataImage) -> str:
        """The reason why the confirmed ``image`` may not delete folders; empty if it may.

        If it may, its version is stored; on a full disk an older version may stay. Raises ``OSError``.
        """
        now = Applied(image.bootstrap_id, image.version)
        try:
            known = self._known or twin_file.load(
                self._filesystem, self._data_directory, APPLIED_FILE, Applied
            )
        except LogCorrupt as error:
            return f"the cluster of its folders is unknown: {error}"
        if known is not None and known.bootstrap_id != now.bootstrap_id:
            return "its folders belong to other metadata"
        if known is not None and (known.was_lost or now.version < known.version):
            if not known.was_lost:
                self._keep(Applied(known.bootstrap_id, known.version, was_lost=True))
            return (
                f"metadata up to version {known.version} was applied, but confirmed metadata was older later"
            )
        if known != now:
            try:
                self._keep(now)
            except OSError as error:
                if known is None or not is_disk_full(error):
                    raise
        return ""

    def _keep(self, applied: Applied) -> None:
        twin_file.keep(self._filesystem, self._data_directory, APPLIED_FILE, applied)
        self._known = applied
