"""The replicated log start of one partition on every replica: a function of the committed log alone.

Decides: the offset below which no record is read, and the newest record, which retention always keeps. Leaves
to others: when the log start advances; deleting segments, whose ends differ between replicas
(``raftlog.hosting.retention``); and refusing readers (``reads``).

The leader writes the log start into the log, and deletes segments once that entry is committed. A later
leader has the entry once it has applied its log, so a log start that a reader has seen never falls.
"""

from __future__ import annotations

import struct
from typing import Final

from raftlog.errors import InvariantViolated
from raftlog.records.batch import CONTROL_BIT, Batch
from raftlog.records.control import log_start_in
from raftlog.types import Index, Offset

SNAPSHOT_VERSION: Final = 1
_SNAPSHOT: Final = struct.Struct(">Bqq")  # version, offset, newest record


class LogStart:
    """The log start offset for readers, and the index of the newest record."""

    def __init__(self) -> None:
        self.offset = Offset(0)
        self.newest_record = Index(-1)  # retention keeps it, so that an idle partition writes no new starts

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch."""
        header = entry.header
        if not header.attributes & CONTROL_BIT:  # nearly always
            self.newest_record = Index(header.base_offset + header.last_offset_delta)
            return
        found = log_start_in(entry)
        if found is not None:
            self.offset = Offset(max(self.offset, found))

    def snapshot(self) -> bytes:
        """Encode the state: equal bytes on every replica with an equal applied index."""
        return _SNAPSHOT.pack(SNAPSHOT_VERSION, self.offset, self.newest_record)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by the state in ``snapshot``; empty bytes stand for the initial state."""
        if not snapshot:
            self.offset, self.newest_record = Offset(0), Index(-1)
            return
        if snapshot[0] != SNAPSHOT_VERSION or len(snapshot) != _SNAPSHOT.size:
            raise InvariantViolated(
                f"the log start has version {snapshot[0]}: install the release that wrote it"
            )
        _, offset, newest_record = _SNAPSHOT.unpack(snapshot)
        self.offset, self.newest_record = Offset(offset), Index(newest_record)
