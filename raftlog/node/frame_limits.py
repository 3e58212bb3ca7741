"""How much one frame between brokers carries, and the limits that follow from it (``docs/limits.md``).

What may be proposed can be sent to the followers, kept in a snapshot and read again. Decides: the numbers.
Leaves to others: refusing what exceeds one of them. The simulator has smaller limits in some runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameLimits:
    """Limits in bytes. All brokers of a cluster have the same."""

    frame_bytes_max: int = 32 << 20
    batch_bytes_max: int = 31 << 20  # of a batch that is proposed: its frame has a head, too
    append_bytes_max: int = 1 << 20  # of several batches in one ``AppendRequest``
    chunk_bytes: int = 256 << 10  # of a snapshot
    repair_bytes_max: int = 256 << 10  # of a part of a log for a repair, beside its last batch
    write_bytes_max: int = 16 << 20  # of one write of a coordinator: half of what a frame carries
    writes_bytes_max: int = 1 << 20  # of several writes of a coordinator in one batch
    decision_bytes_max: int = 15 << 20
    """The bytes of the rows that decide about a batch of a sink; the row of the sink is in the same write."""


FRAME_LIMITS: Final = FrameLimits()
"""The limits of every broker outside the simulator."""
