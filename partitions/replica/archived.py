"""The offset up to which a partition is archived: a function of the committed log alone.

Decides: which archived offset is in force. Leaves to others: when it is set (``archiving``), and which
segments wait for it (``raftlog.storage.retention``).

Every later leader has the entry, so retention may delete the same records on any leader. A leader that has
not applied the newest entry yet knows a lower offset, and deletes fewer records.
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
    """The archived offset: all records below it are in an archive. If it is 0, no archive is known."""

    def __init__(self) -> None:
        self.offset = Offset(0)

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch.

        An archived offset below the current one counts only with ``may_lower``.
        """
        found = archived_in(entry)
        if found is not None:
            self.offset = Offset(found.offset if found.may_lower else max(self.offset, found.offset))

    def snapshot(self) -> bytes:
        """Encode the state: equal bytes on every replica with an equal applied index."""
        return _SNAPSHOT.pack(SNAPSHOT_VERSION, self.offset)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by the state in ``snapshot``; empty bytes stand for the initial state."""
        if not snapshot:
            self.offset = Offset(0)
            return
        if snapshot[0] != SNAPSHOT_VERSION or len(snapshot) != _SNAPSHOT.size:
            raise InvariantViolated(
                f"the archived offset has version {snapshot[0]}: install the release that wrote it"
            )
        self.offset = Offset(_SNAPSHOT.unpack(snapshot)[1])
