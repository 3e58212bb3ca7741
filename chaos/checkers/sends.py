"""Checks the order of one process's sends in the log, and finds transactions of which a reader saw only a
part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.checkers.anomaly import Anomaly, Severity
from chaos.checkers.evidence import Evidence
from chaos.checkers.readers import walk
from chaos.history import Outcome, Send


def disordered_sends(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values of one process or transaction that are stored in another order than sent, or with values
    of others between them.
    """
    last: dict[tuple[int, int], tuple[int, int | None, str]] = {}  # index, transaction, value
    orders = evidence.orders
    for send in sorted(evidence.history.sends, key=_invoked_s):
        if send.outcome is Outcome.FAILED or send.partition not in orders:
            continue
        index = orders[send.partition].index.get(send.value)
        if index is None:
            continue
        key = send.process, send.partition
        before = last.get(key)
        last[key] = index, send.txn, send.value
        if before is None:
            continue
        is_inside = send.txn is not None and send.txn == before[1]
        detail = f"process {send.process} sent {send.value!r} after {before[2]!r}"
        if index <= before[0]:
            kind = "int-nonmonotonic-send" if is_inside else "nonmonotonic-send"
            yield Anomaly(
                kind, send.partition, f"{detail}, but the log has it {before[0] - index} places earlier"
            )
        elif is_inside and index > before[0] + 1:
            between = f"{index - before[0] - 1} values of others are between"
            yield Anomaly("int-send-skip", send.partition, f"{detail}, {between}", Severity.NORMAL)


def _invoked_s(send: Send) -> float:
    return send.invoked_s


@dataclass(slots=True)
class _Coverage:
    """A range of offsets that one reader read without a gap, and the values in it."""

    first: int
    last: int
    values: set[str] = field(default_factory=set)


Coverages = dict[int, list[_Coverage]]


def torn_transactions(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield transactions that must have committed and of which a reader missed a value, although it read
    beyond all their values.
    """
    if not evidence.txns:
        return
    readers = [*_coverages(evidence).items()]
    for txn, sends in evidence.txns.items():
        if not evidence.must_have_committed(sends[0]):
            continue
        spans = _spans(evidence, sends)
        if spans is None:
            continue
        for reader, coverages in readers:
            passed = _passed(coverages, spans)
            missed = passed and [
                send
                for send in sends
                if send.value not in passed[send.partition].values
                and not evidence.is_deleted(send.partition, spans[send.partition][0])
            ]
            if missed:
                who = "the final read" if reader is None else f"process {reader}"
                detail = f"{who} passed transaction {txn} and missed {missed[0].value!r}"
                yield Anomaly("torn-transaction", missed[0].partition, detail)


def _coverages(evidence: Evidence) -> dict[int | None, Coverages]:
    """Return the ranges that each process has read. All final reads count as one reader; group members are
    left out.
    """
    readers: defaultdict[int | None, Coverages] = defaultdict(dict)
    breaks: dict[tuple[int, int], int] = {}
    finals = {id(poll) for poll in evidence.history.final}
    for poll, reader in walk(evidence.history):
        if poll.outcome is not Outcome.ACKNOWLEDGED or not poll.records:
            continue
        if reader.subscribes:
            breaks[poll.process, poll.partition] = -1
            continue
        is_final, stay = id(poll) in finals, reader.stays.get(poll.partition, 0)
        found = readers[None if is_final else poll.process].setdefault(poll.partition, [])
        if not found or (breaks.get((poll.process, poll.partition), 0) != stay and not is_final):
            first = 0 if is_final else poll.records[0][0]  # the final read begins at the log start
            found.append(_Coverage(first, first))
        breaks[poll.process, poll.partition] = stay
        found[-1].last = max(found[-1].last, poll.records[-1][0])
        found[-1].values.update(value for _, value in poll.records)
    return readers


def _spans(evidence: Evidence, sends: list[Send]) -> dict[int, tuple[int, int]] | None:
    """Return the lowest and highest offset of the sends in each partition; None if a highest offset is
    unknown.
    """
    spans: dict[int, tuple[int, int]] = {}
    for send in reversed(sends):
        order = evidence.orders.get(send.partition)
        place = None if order is None else order.index.get(send.value)
        if order is not None and place is not None:
            offset = order.offsets[place]
            low, high = spans.get(send.partition, (offset, offset))
            spans[send.partition] = min(low, offset), max(high, offset)
        elif send.partition not in spans:
            return None
    return spans


def _passed(coverages: Coverages, spans: dict[int, tuple[int, int]]) -> dict[int, _Coverage] | None:
    passed: dict[int, _Coverage] = {}
    for partition, (low, high) in spans.items():
        for coverage in coverages.get(partition, ()):
            if coverage.first <= low and high <= coverage.last:
                passed[partition] = coverage
        if partition not in passed:
            return None
    return passed
