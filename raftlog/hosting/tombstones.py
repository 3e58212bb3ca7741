"""The offset below which tombstones may be removed: a pure decision from the members' answers.

A tombstone must stay while any replica has an older record of its key. If that replica later received the
log without the tombstone, by an append or a repair, the deleted record would be its newest. So the leader
asks all members how far their logs are clean. An answer counts only if the log has been open, without a
repair, since the previous answer; then there was a time at which all logs were clean up to the smallest of
the previous answers. A replica that becomes a member later begins empty and receives a member's log. So the
condition stays true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raftlog.storage.retention import ClosedSegment
from raftlog.types import NodeId


class Clean(NamedTuple):
    """The answer of one member: no record below ``end`` is superseded by another record below ``end``.

    This holds for its log, and for the states from which the log may be applied.
    """

    opening: int  # another number whenever a log is opened
    end: int


class Agreement:
    """The offset up to which all members' logs are clean, as far as a leader knows it in one term."""

    def __init__(self) -> None:
        self.end = 0  # every member's log is clean up to this offset
        self._before: Mapping[NodeId, Clean] | None = None

    def heard(self, answers: Mapping[NodeId, Clean | None]) -> int:
        """Note the answers of all members to one question, None for a missing answer; return the
        clean end.
        """
        before, now = self._before, {node: clean for node, clean in answers.items() if clean is not None}
        self._before = now if len(now) == len(answers) else None
        if (
            before is not None
            and self._before is not None
            and before.keys() == now.keys()
            and all(before[node].opening == now[node].opening for node in now)
        ):
            self.end = max(self.end, min(clean.end for clean in before.values()))
        return self.end


def old_enough(closed: Sequence[ClosedSegment], now_ms: int | None, delete_retention_ms: int) -> int:
    """The end of the segments that were stored at least ``delete_retention_ms`` ago; 0 without a
    known time.
    """
    end = 0
    for segment in closed:
        if now_ms is None or segment.stored_ms >= now_ms - delete_retention_ms:
            break
        end = segment.last + 1
    return end
