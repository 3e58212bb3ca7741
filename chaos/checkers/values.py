"""Checks single values: their offsets, whether they may be read, and whether they are kept in the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from chaos.checkers.anomaly import Anomaly, severity
from chaos.checkers.evidence import Evidence
from chaos.checkers.readers import walk
from chaos.history import Outcome, Send


def inconsistent_offsets(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield offsets at which clients saw several values."""
    for partition, order in evidence.orders.items():
        for offset, values in order.conflicts.items():
            shown = " and ".join(map(repr, values))
            yield Anomaly("inconsistent-offsets", partition, f"offset {offset} held {shown}")


def duplicates(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that clients saw at several offsets."""
    for partition, order in evidence.orders.items():
        if order.first is order.last:
            continue
        places: dict[str, list[int]] = defaultdict(list)
        for offset, value in order.seen:
            places[value].append(offset)
        for value, offsets in places.items():
            if len(offsets) > 1:
                shown = " and ".join(map(str, offsets))
                yield Anomaly("duplicate", partition, f"{value!r} is at {shown}")


def lost_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that must have committed and that no poll returned, although polls read beyond their
    offsets.
    """
    bounds = {
        partition: max((evidence.orders[partition].first[value] for value in values), default=-1)
        for partition, values in evidence.read.items()
    }
    for send in _unread(evidence):
        order = evidence.orders.get(send.partition)
        place = None if order is None else order.last.get(send.value)
        if order is None or place is None or not evidence.must_have_committed(send):
            continue
        if place <= bounds.get(send.partition, -1):
            yield Anomaly("lost-write", send.partition, _sent(send))


def unseen_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield acknowledged values that no poll returned. Without a final read, such a value may only be
    late.
    """
    weight = severity(evidence.history.has_final_read)
    for send in _unread(evidence):
        if send.outcome is Outcome.ACKNOWLEDGED:
            yield Anomaly("unseen", send.partition, _sent(send), weight)


def _unread(evidence: Evidence) -> Iterator[Send]:
    """Yield sends of values that no poll returned and that are not deleted."""
    read, nothing = evidence.read, set[str]()
    for send in evidence.history.sends:
        if send.value in read.get(send.partition, nothing):
            continue
        if not evidence.is_deleted(send.partition, send.offset):
            yield send


def _sent(send: Send) -> str:
    return f"{send.value!r} was {send.outcome.value} at {send.offset}"


def read_and_lost(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that a poll returned, and that are neither returned by the final read nor deleted."""
    if not evidence.history.has_final_read:
        return
    final: defaultdict[int, set[str]] = defaultdict(set)
    for poll in evidence.history.final:
        final[poll.partition].update(value for _, value in poll.records)
    for partition, values in evidence.read.items():
        missing = values - final[partition]
        for offset, value in sorted(evidence.polled[partition]) if missing else ():
            if value in missing and not evidence.is_deleted(partition, offset):
                yield Anomaly("read-and-lost", partition, f"{value!r} was read at {offset}")


def aborted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that were read although their send definitely failed."""
    for send in evidence.history.sends:
        if send.outcome is Outcome.FAILED and evidence.was_read(send):
            yield Anomaly("G1a", send.partition, f"{send.value!r} failed and was read")


def precommitted_reads(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that a transaction read although the transaction itself had sent them."""
    for poll in evidence.history.all_polls():
        if poll.txn is None or poll.txn not in evidence.txns:
            continue
        own = {send.value for send in evidence.txns[poll.txn] if send.partition == poll.partition}
        for offset, value in poll.records:
            if value in own:
                detail = f"transaction {poll.txn} sent {value!r} and read it at {offset}"
                yield Anomaly("precommitted-read", poll.partition, detail)


def invented_values(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that were read from a partition to which they were never sent."""
    sent: defaultdict[int, set[str]] = defaultdict(set)
    for send in evidence.history.sends:
        sent[send.partition].add(send.value)
    for partition, values in evidence.read.items():
        invented = values - sent[partition]
        for offset, value in sorted(evidence.polled[partition]) if invented else ():
            if value in invented:
                yield Anomaly("invented-value", partition, f"{value!r} is at {offset}")


def reads_from_the_future(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield values that were read before their send began: an error of a clock or of a checker."""
    invoked: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for send in evidence.history.sends:
        invoked[send.partition][send.value] = send.invoked_s
    for poll in evidence.history.all_polls():
        begun, completed_s = invoked[poll.partition], poll.completed_s
        for offset, value in poll.records:
            if begun.get(value, completed_s) > completed_s:
                yield Anomaly("read-from-the-future", poll.partition, f"{value!r} at {offset}")


def consume_counts(evidence: Evidence, *, exactly_once: bool) -> Iterator[Anomaly]:
    """Yield values that transactions of one subscribed process read several times."""
    counts: Counter[tuple[int, int, str]] = Counter()
    for poll, reader in walk(evidence.history):
        if poll.txn is not None and poll.outcome is Outcome.ACKNOWLEDGED and reader.subscribes:
            counts.update((poll.process, poll.partition, value) for _, value in poll.records)
    for (process, partition, value), count in counts.items():
        if count > 1:
            detail = f"process {process} consumed {value!r} {count} times"
            yield Anomaly("consume-counts", partition, detail, severity(exactly_once))
