"""Derives facts from a history that several checkers need: the version order of each partition, and the
values read.

The version order has all values that polls returned, with any outcome, and the sends that must have
committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from chaos.history import History, Outcome, Poll, Send

Record = tuple[int, str]  # offset and value


class VersionOrder:
    """The values of one partition, ordered by offset. Offsets for which no value is known are left out."""

    def __init__(self, seen: Iterable[Record]) -> None:
        self.seen = sorted(seen)
        self.by_index: tuple[Record, ...] = tuple(self.seen)
        self.conflicts: dict[int, list[str]] = {}  # offsets with several values
        if any(one[0] == other[0] for one, other in pairwise(self.seen)):
            values: dict[int, list[str]] = {}
            for offset, value in self.seen:
                values.setdefault(offset, []).append(value)
            self.conflicts = {offset: found for offset, found in values.items() if len(found) > 1}
            self.by_index = tuple((offset, found[0]) for offset, found in values.items())
        self.offsets = [offset for offset, _ in self.by_index]
        numbered = zip(reversed(self.by_index), range(len(self.by_index) - 1, -1, -1), strict=True)
        self.index = {value: index for (_, value), index in numbered}  # the first index of duplicates
        self.first, self.last = self.index, self.index  # of all values, by their places
        if self.conflicts or len(self.index) < len(self.by_index):
            places = {offset: index for index, offset in enumerate(self.offsets)}
            self.last = {value: places[offset] for offset, value in self.seen}
            self.first = {value: places[offset] for offset, value in reversed(self.seen)}


class Evidence:
    """A history and the facts that follow from the history. Only successful polls count as reads."""

    def __init__(self, history: History) -> None:
        self.history = history
        read: defaultdict[int, set[Record]] = defaultdict(set)
        other: defaultdict[int, set[Record]] = defaultdict(set)
        for poll in history.all_polls():
            (read if poll.outcome is Outcome.ACKNOWLEDGED else other)[poll.partition].update(poll.records)
        self.polled = read
        self.read = {partition: {value for _, value in records} for partition, records in read.items()}
        self.txns: dict[int, list[Send]] = {}
        for send in history.sends:
            if send.txn is not None:
                self.txns.setdefault(send.txn, []).append(send)
        self._committed = {
            txn for txn, sends in self.txns.items() if any(self.was_read(send) for send in sends)
        }
        seen: dict[int, set[Record]] = {partition: set(records) for partition, records in read.items()}
        for partition, records in other.items():
            seen.setdefault(partition, set()).update(records)
        for send in history.sends:
            if send.offset is not None and self.must_have_committed(send):
                seen.setdefault(send.partition, set()).add((send.offset, send.value))
        self.orders = {partition: VersionOrder(records) for partition, records in seen.items()}
        self.log_starts = history.log_starts() if history.has_final_read else _told(history.polls)

    def was_read(self, send: Send) -> bool:
        """True if a successful poll returned the value that was sent."""
        return send.value in self.read.get(send.partition, ())

    def must_have_committed(self, send: Send) -> bool:
        """True if the send succeeded, or its outcome is unknown but one of its transaction's values was read.

        Without a transaction, only the send's own value counts.
        """
        if send.outcome is not Outcome.UNKNOWN:
            return send.outcome is Outcome.ACKNOWLEDGED
        return self.was_read(send) if send.txn is None else send.txn in self._committed

    def is_deleted(self, partition: int, offset: int | None) -> bool:
        """True if the offset is below the log start that responses reported to clients."""
        return offset is not None and offset < self.log_starts.get(partition, 0)


def _told(polls: Iterable[Poll]) -> dict[int, int]:
    starts: dict[int, int] = {}
    for poll in polls:
        if poll.log_start > starts.get(poll.partition, 0):
            starts[poll.partition] = poll.log_start
    return starts
