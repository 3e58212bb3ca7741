"""The limits of one frame between brokers, and the limits that follow from them (``docs/limits.md``).

With these limits every entry that may be proposed can be sent to followers, kept in a snapshot and read
again. Decides: the numbers. Leaves to others: refusing requests that exceed a limit. The simulator has
smaller limits in some runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """Limits in bytes, equal on all brokers of a cluster."""

    frame_bytes_max: int = 32 << 20
    batch_bytes_max: int = 31 << 20  # of a proposed batch: its frame also has a head
    append_bytes_max: int = 1 << 20  # of several batches in one ``AppendRequest``
    chunk_bytes: int = 256 << 10  # of a snapshot
    repair_bytes_max: int = 256 << 10  # of a part of a log for a repair, without its last batch
    write_bytes_max: int = 16 << 20  # of one write of a coordinator: half of a frame
    writes_bytes_max: int = 1 << 20  # of several writes of a coordinator in one batch
    decision_bytes_max: int = 15 << 20
    """The maximum size of the rows that decide about a sink's batch; the row of the sink is in the same
    write.
    """


FRAME_LIMITS: Final = FrameLimits()
"""The limits of brokers in production."""
