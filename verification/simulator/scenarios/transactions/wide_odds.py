"""The random parameters of wide transactions: in these runs the size limit of a frame between brokers is
small.

All limits that follow from it are smaller, too, so that a few transactions are enough to come near them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final, Self

from raftlog.node.frame_limits import FrameLimits

WIDE_ODDS: Final = 0.12  # of runs with transactions
HANDLE_BYTES: Final = 1_050  # of the sink, for each of its transactions: as with 999 of them in production


@dataclass(frozen=True, slots=True, kw_only=True)
class WideOdds:
    """The parameters: the size limit of a frame, and ``handles``, the most transactions in a batch of the
    sink.
    """

    frame_bytes_max: int
    handles: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Self | None:
        """Draw the parameters for one seed; None for most seeds."""
        if rng.random() >= WIDE_ODDS:
            return None
        return cls(frame_bytes_max=rng.choice((24 << 10, 32 << 10, 48 << 10)), handles=rng.choice((3, 4, 6)))

    @property
    def frame_limits(self) -> FrameLimits:
        """Return the frame limits of production on a smaller scale.

        A write may be nearly as large as a frame.
        """
        frame = self.frame_bytes_max
        write = frame * 15 // 16
        return FrameLimits(
            frame_bytes_max=frame,
            batch_bytes_max=frame * 31 // 32,
            append_bytes_max=frame // 32,
            chunk_bytes=frame // 4,
            repair_bytes_max=frame // 128,
            write_bytes_max=write,
            writes_bytes_max=frame // 32,
            decision_bytes_max=write - self.handles * HANDLE_BYTES,
        )
