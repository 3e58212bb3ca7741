"""What clients saw: the only evidence that the checkers accept.

Times are seconds of one monotonic clock. A send whose outcome is ``UNKNOWN`` may have happened
at any time after it was invoked, or never; only an answer that promises that nothing was written
counts as ``FAILED``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Outcome(enum.Enum):
    """How a send ended, as its client knows it."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One value offered to one partition. Values are unique in a history."""

    process: int
    partition: int
    value: str
    invoked_s: float
    completed_s: float
    outcome: Outcome
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Consecutive records that one process read from one partition, in the order it got them."""

    process: int
    partition: int
    invoked_s: float
    completed_s: float
    records: tuple[tuple[int, str], ...]  # (offset, value)


@dataclass(slots=True)
class History:
    """Everything that happened; ``final`` polls read every partition from its start to its end."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    final: list[Poll] = field(default_factory=list)
