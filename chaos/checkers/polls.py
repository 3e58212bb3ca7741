"""Checks the order in which processes read a partition: no value is read twice, and no value is omitted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from chaos.checkers.anomaly import Anomaly, severity
from chaos.checkers.evidence import Evidence, VersionOrder
from chaos.checkers.readers import walk
from chaos.history import Outcome, Poll


def disordered_polls(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield pairs of consecutive reads whose values are not neighbours in the version order.

    Compares the values inside one operation, and the last value of a process's successful operation with the
    first value of its next operation.
    """
    inside: dict[tuple[int, int], int | None] = {}  # the last index, by transaction and partition
    for poll, reader in walk(evidence.history):
        order, partition = evidence.orders.get(poll.partition), poll.partition
        if order is None:
            continue
        if poll.log_start and partition in reader.last:  # as if the process had read the deleted values
            below = bisect_left(order.offsets, poll.log_start) - 1
            reader.last[partition] = max(reader.last[partition], below)
        if not poll.records:
            continue
        key = None if poll.txn is None else (poll.txn, partition)
        first = order.index.get(poll.records[0][1])
        if key is not None and key in inside:
            if not poll.rebalanced:
                yield from _compared("int-", poll, inside[key], first, poll.records[0][1], True)
        elif poll.outcome is Outcome.ACKNOWLEDGED:
            last = reader.last.get(partition)
            yield from _compared("", poll, last, first, poll.records[0][1], not reader.subscribes)
        if not poll.rebalanced:
            yield from _inside(poll, order, first)
        end = order.index.get(poll.records[-1][1])
        if key is not None:
            inside[key] = end
        if poll.outcome is Outcome.ACKNOWLEDGED and end is not None:
            reader.last[partition] = end


def _inside(poll: Poll, order: VersionOrder, first: int | None) -> Iterator[Anomaly]:
    records = poll.records
    is_unique = order.first is order.last
    if is_unique and first is not None and order.by_index[first : first + len(records)] == records:
        return
    last = first
    for _, value in records[1:]:
        index = order.index.get(value)
        yield from _compared("int-", poll, last, index, value, True)
        last = index


def _compared(
    prefix: str, poll: Poll, last: int | None, index: int | None, value: str, is_bad: bool
) -> Iterator[Anomaly]:
    """Yield an anomaly if two consecutive reads do not have consecutive indexes. An unknown index counts as
    consecutive.
    """
    if last is None or index is None or index == last + 1:
        return
    kind = f"{prefix}poll-skip" if index > last else f"{prefix}nonmonotonic-poll"
    places = f"{index - last - 1} values omitted" if index > last else f"{last - index} places back"
    detail = f"process {poll.process} read {value!r}, {places}"
    yield Anomaly(kind, poll.partition, detail, severity(is_bad))
