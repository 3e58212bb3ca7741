"""Up to where tombstones may be removed: a pure decision over what members say.

A tombstone must stay while any replica has an older record of its key: if that replica later received the
log without the tombstone, by an append or a repair, the deleted record would be its newest. So the leader
asks all members how far their logs are clean. An answer counts only if the log has been open, without a
repair, since the answer before; then there was a time at which all logs were clean up to the smallest of the
answers before. A replica that becomes a member later begins empty and receives what a member has. So this
stays true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raftlog.storage.retention import ClosedSegment
from raftlog.types import NodeId


class Clean(NamedTuple):
    """The answer of one member: below ``end`` no record is superseded by another one below ``end``.

    That goes for its log, and for the states that the log may be applied from.
    """

    opening: int  # another number each time that a log is opened
    end: int


class Agreement:
    """The end of the clean part of all members' logs, as a leader knows it in one term."""

    def __init__(self) -> None:
        self.end = 0  # every member's log is clean up to here
        self._before: Mapping[NodeId, Clean] | None = None

    def heard(self, answers: Mapping[NodeId, Clean | None]) -> int:
        """The answers of all members at one look, None for a member that did not answer."""
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
    """The end of the segments that were stored so long ago; 0 while the time is not known."""
    end = 0
    for segment in closed:
        if now_ms is None or segment.stored_ms >= now_ms - delete_retention_ms:
            break
        end = segment.last + 1
    return end
