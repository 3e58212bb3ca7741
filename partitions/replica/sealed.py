"""The seal of a partition, which decides whether it accepts records: a function of the committed log alone.

Decides: which seal is in force. Leaves to others: when a seal is written (``sealing``), and refusing
producers (``replica``).

A seal contains the metadata version that its leader knew. A seal of an older version than the newest seal has
no effect, so a leader with old metadata does not undo a change.
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
    """The newest seal in the log, or the newest end of a seal."""

    def __init__(self) -> None:
        self.newest = OPEN

    def apply(self, entry: Batch) -> None:
        """Apply one committed control batch."""
        found = seal_in(entry)
        if found is not None and found.version >= self.newest.version:
            self.newest = found

    def snapshot(self) -> bytes:
        """Encode the state: equal bytes on every replica with an equal applied index."""
        return _SNAPSHOT.pack(SNAPSHOT_VERSION, *self.newest)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by the state in ``snapshot``; empty bytes stand for the initial state."""
        if not snapshot:
            self.newest = OPEN
            return
        if snapshot[0] != SNAPSHOT_VERSION or len(snapshot) != _SNAPSHOT.size:
            raise InvariantViolated(f"the seal has version {snapshot[0]}: install the release that wrote it")
        _, is_sealed, version = _SNAPSHOT.unpack(snapshot)
        self.newest = Seal(is_sealed, version)
