"""Up to which offset a partition is archived: a function of the committed log alone.

Decides: which archived offset counts. Leaves to others: when it is set (``archiving``), and which segments
wait for it (``raftlog.storage.retention``).

Every later leader has the entry, so what retention may delete does not depend on who leads. A leader that has
not applied the newest entry yet knows a lower offset, and deletes less.
"""

from __future__ import annotations

import struct
from typing import Final

from raftlog.errors import InvariantViolated
from raftlog.records.batch import Batch
from raftlog.records.control import archived_in
from raftlog.types import Offset

SNAPSHOT_VERSION: Final = 1
_SNAPSHOT: Final = struct.Struct(">Bq")  # version, offset


class ArchivedUpTo:
    """Records below ``offset`` are in an archive. 0: none is known to be."""

    def __init__(self) -> None:
        self.offset = Offset(0)

    def apply(self, entry: Batch) -> None:
        """Take in one committed batch. A lower offset counts only if its entry says that it may."""
        found = archived_in(entry)
        if found is not None:
            self.offset = Offset(found.offset if found.may_lower else max(self.offset, found.offset))

    def snapshot(self) -> bytes:
        """The state; the same bytes on every replica that has applied the same batches."""
        return _SNAPSHOT.pack(SNAPSHOT_VERSION, self.offset)

    def restore(self, snapshot: bytes) -> None:
        """Become the state that ``snapshot`` describes; an empty one means the initial state."""
        if not snapshot:
            self.offset = Offset(0)
            return
        if snapshot[0] != SNAPSHOT_VERSION or len(snapshot) != _SNAPSHOT.size:
            raise InvariantViolated(f"an archived offset of version {snapshot[0]}; this broker is too old")
        self.offset = Offset(_SNAPSHOT.unpack(snapshot)[1])
