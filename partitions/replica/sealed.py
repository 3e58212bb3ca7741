"""Whether a partition takes records of producers: a function of the committed log alone.

Decides: which seal counts. Leaves to others: when one is written (``sealing``), and refusing producers
(``replica``).

A seal names the metadata version by which its leader wrote it. A leader with older metadata than that changes
nothing, so one that has missed a change does not take it back.
"""

from __future__ import annotations

import struct
from typing import Final

from raftlog.errors import InvariantViolated
from raftlog.records.batch import Batch
from raftlog.records.control import Seal, seal_in

SNAPSHOT_VERSION: Final = 1
_SNAPSHOT: Final = struct.Struct(">B?q")  # version, whether it is sealed, metadata version
OPEN: Final = Seal(is_sealed=False, version=0)


class Sealed:
    """The newest seal of the log, or the end of one."""

    def __init__(self) -> None:
        self.newest = OPEN

    def apply(self, entry: Batch) -> None:
        """Take in one committed control batch."""
        found = seal_in(entry)
        if found is not None and found.version >= self.newest.version:
            self.newest = found

    def snapshot(self) -> bytes:
        """The state; the same bytes on every replica that has applied the same batches."""
        return _SNAPSHOT.pack(SNAPSHOT_VERSION, *self.newest)

    def restore(self, snapshot: bytes) -> None:
        """Become the state that ``snapshot`` describes; an empty one means the initial state."""
        if not snapshot:
            self.newest = OPEN
            return
        if snapshot[0] != SNAPSHOT_VERSION or len(snapshot) != _SNAPSHOT.size:
            raise InvariantViolated(f"a seal of version {snapshot[0]}; this broker is too old")
        _, is_sealed, version = _SNAPSHOT.unpack(snapshot)
        self.newest = Seal(is_sealed, version)
