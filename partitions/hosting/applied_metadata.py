"""The newest metadata that this broker has acted on, as its disk remembers it.

Decides: by which metadata folders may be given up: by none that is of another bootstrap, and by none that is
older than what has been acted on. Leaves to others: which folders (``replica_manager``).

``<data>/applied_metadata`` holds bootstrap id and version, and whether confirmed metadata was ever older:
then a part of the metadata has been lost, and later versions of it prove nothing. It is kept twice
(``raftlog.storage.twin_file``).
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
    """The content of the file."""

    bootstrap_id: str
    version: int
    was_lost: bool = False


class AppliedMetadata:
    """One disk's. Waits for the disk."""

    def __init__(self, filesystem: Filesystem, data_directory: str) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._known: Applied | None = None  # as on the disk

    def objection(self, image: MetadataImage) -> str:
        """Why no folder may be given up by this image, which is confirmed; empty when it may.

        It is remembered then. On a full disk an older version may stay remembered. Raises ``OSError``.
        """
        now = Applied(image.bootstrap_id, image.version)
        try:
            known = self._known or twin_file.load(
                self._filesystem, self._data_directory, APPLIED_FILE, Applied
            )
        except LogCorrupt as error:
            return f"which cluster its folders belong to is unknown: {error}"
        if known is not None and known.bootstrap_id != now.bootstrap_id:
            return "its folders belong to other metadata"
        if known is not None and (known.was_lost or now.version < known.version):
            if not known.was_lost:
                self._keep(Applied(known.bootstrap_id, known.version, was_lost=True))
            return f"metadata was acted on up to version {known.version}, and was older when confirmed later"
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
