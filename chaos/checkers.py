"""Checks a history of sends and polls of a log for anomalies.

The anomalies are those of Jepsen's workload for Kafka-like logs (``tests/kafka.clj``), without
transactions, and those of linearizable reads of a log's end. Each function takes a history and returns
the anomalies found; an empty list means that the history shows none. Linear in the number of
operations except for sorts by time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.history import History, Outcome, Send


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A violation of the guarantees."""

    kind: str
    partition: int
    detail: str


def check(history: History) -> list[Anomaly]:
    """All anomalies of a history, by kind."""
    return [anomaly for checker in CHECKERS for anomaly in checker(history)]


def revalued_offsets(history: History) -> Iterator[Anomaly]:
    """One offset was seen with two values: in polls, or in a poll and an acknowledgement."""
    seen: dict[tuple[int, int], str] = {}
    for partition, offset, value in _sightings(history):
        first = seen.setdefault((partition, offset), value)
        if first != value:
            yield Anomaly("re-valued offset", partition, f"offset {offset} held {first!r} and {value!r}")


def duplicates(history: History) -> Iterator[Anomaly]:
    """One value was seen at two offsets."""
    seen: dict[tuple[int, str], int] = {}
    for partition, offset, value in _sightings(history):
        first = seen.setdefault((partition, value), offset)
        if first != offset:
            yield Anomaly("duplicate", partition, f"{value!r} is at {first} and {offset}")


def lost_writes(history: History) -> Iterator[Anomaly]:
    """An acknowledged value is not in the final read, nor deleted.

    Without a final read: no poll returned it, although polls got past its offset.
    """
    if not history.has_final_read:
        yield from _passed_over(history)
        return
    read = {(poll.partition, value) for poll in history.final for _, value in poll.records}
    starts = history.log_starts()
    for send in history.sends:
        if send.outcome is not Outcome.ACKNOWLEDGED or (send.partition, send.value) in read:
            continue
        if send.offset is None or send.offset >= starts.get(send.partition, 0):
            yield Anomaly("lost write", send.partition, f"{send.value!r} was acknowledged at {send.offset}")


def _passed_over(history: History) -> Iterator[Anomaly]:
    read: dict[int, dict[str, int]] = defaultdict(dict)  # by partition: values, and where each was first
    for poll in history.polls:
        for offset, value in poll.records:
            known = read[poll.partition].setdefault(value, offset)
            read[poll.partition][value] = min(known, offset)
    ends = {partition: max(firsts.values()) for partition, firsts in read.items()}
    for send in history.sends:
        if send.outcome is not Outcome.ACKNOWLEDGED or send.offset is None:
            continue
        if send.value not in read[send.partition] and send.offset <= ends.get(send.partition, -1):
            yield Anomaly("lost write", send.partition, f"{send.value!r} was acknowledged at {send.offset}")


def unread_again(history: History) -> Iterator[Anomaly]:
    """A value that some poll returned is not in the final read, nor deleted: it was readable and then
    lost.
    """
    if not history.has_final_read:
        return
    read = {(poll.partition, value) for poll in history.final for _, value in poll.records}
    starts = history.log_starts()
    for poll in history.polls:
        for offset, value in poll.records:
            if (poll.partition, value) not in read and offset >= starts.get(poll.partition, 0):
                yield Anomaly("read and lost", poll.partition, f"{value!r} was read at {offset}")


def aborted_reads(history: History) -> Iterator[Anomaly]:
    """A value whose send definitely failed was read."""
    failed = {(send.partition, send.value) for send in history.sends if send.outcome is Outcome.FAILED}
    for poll in history.all_polls():
        for offset, value in poll.records:
            if (poll.partition, value) in failed:
                yield Anomaly("aborted read", poll.partition, f"{value!r} failed and is at {offset}")


def invented_values(history: History) -> Iterator[Anomaly]:
    """A value was read that was never sent to that partition."""
    sent = {(send.partition, send.value) for send in history.sends}
    for poll in history.all_polls():
        for offset, value in poll.records:
            if (poll.partition, value) not in sent:
                yield Anomaly("invented value", poll.partition, f"{value!r} is at {offset}")


def disordered_polls(history: History) -> Iterator[Anomaly]:
    """Inside one poll, or from one poll of a process to its next, offsets did not rise."""
    last: dict[tuple[int, int], int] = {}
    for poll in history.all_polls():
        key = (poll.process, poll.partition)
        for offset, value in poll.records:
            if offset <= last.get(key, -1):
                yield Anomaly("reordered poll", poll.partition, f"{value!r} at {offset} after {last[key]}")
            last[key] = offset


def skipped_records(history: History) -> Iterator[Anomaly]:
    """Inside one poll, or from one poll of a process to its next, a record was omitted that others saw.

    The record was not reported to the process as deleted.
    """
    offsets: dict[int, set[int]] = defaultdict(set)
    for poll in history.all_polls():
        offsets[poll.partition].update(offset for offset, _ in poll.records)
    order = {partition: sorted(known) for partition, known in offsets.items()}
    place = {
        partition: {offset: number for number, offset in enumerate(known)}
        for partition, known in order.items()
    }
    last: dict[tuple[int, int], int] = {}
    for poll in history.all_polls():
        key = (poll.process, poll.partition)
        if poll.log_start and key in last:  # as if it had read the deleted records
            last[key] = max(last[key], bisect_left(order[poll.partition], poll.log_start) - 1)
        if not poll.records:
            continue
        places = place[poll.partition]
        numbers = [places[offset] for offset, _ in poll.records]
        expected = last.get(key, numbers[0] - 1) + 1
        last[key] = numbers[-1]
        if numbers[0] <= expected and numbers[-1] - numbers[0] == len(numbers) - 1:
            continue  # contiguous; another function checks that offsets rise
        for number, (offset, value) in zip(numbers, poll.records, strict=True):
            if number > expected:
                detail = f"{number - expected} before {value!r} at {offset}"
                yield Anomaly("skipped record", poll.partition, detail)
            expected = number + 1


def stale_looks(history: History) -> Iterator[Anomaly]:
    """A linearizable end is below a record acknowledged, read or known to be the end before."""
    # (when it was known, partition, what the end was at least)
    known = [
        (send.completed_s, send.partition, send.offset + 1)
        for send in history.sends
        if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None
    ]
    known += [
        (poll.completed_s, poll.partition, poll.records[-1][0] + 1)
        for poll in history.all_polls()
        if poll.records
    ]
    known += [(look.completed_s, look.partition, look.high_watermark) for look in history.looks]
    known.sort()
    ends: dict[int, int] = {}
    at = 0
    for look in sorted(history.looks, key=lambda look: look.invoked_s):
        while at < len(known) and known[at][0] < look.invoked_s:
            _, partition, end = known[at]
            ends[partition] = max(ends.get(partition, 0), end)
            at += 1
        if look.high_watermark < ends.get(look.partition, 0):
            detail = f"the end was {look.high_watermark}, and {ends[look.partition]} before that"
            yield Anomaly("stale look", look.partition, detail)


def reads_from_the_future(history: History) -> Iterator[Anomaly]:
    """A value was read before its send began: an error of the clock of the harness, or of a checker."""
    invoked = {(send.partition, send.value): send.invoked_s for send in history.sends}
    for poll in history.all_polls():
        for offset, value in poll.records:
            if invoked.get((poll.partition, value), poll.completed_s) > poll.completed_s:
                yield Anomaly("read from the future", poll.partition, f"{value!r} at {offset}")


def reordered_sends(history: History) -> Iterator[Anomaly]:
    """A send that began after another had been acknowledged is stored before it (real time), for
    all processes; or the values of one process are stored in another order than sent.
    """
    by_partition: dict[int, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None:
            by_partition[send.partition].append(send)
    for partition, sends in by_partition.items():
        yield from _real_time_order(partition, sends)
    place = {(poll.partition, value): offset for poll in history.final for offset, value in poll.records}
    last: dict[tuple[int, int], tuple[int, str]] = {}
    for send in sorted(history.sends, key=lambda send: send.invoked_s):
        offset = place.get((send.partition, send.value))
        if offset is None:
            continue
        before = last.get((send.process, send.partition))
        if before is not None and offset < before[0]:
            detail = f"{send.value!r} at {offset} was sent after {before[1]!r} at {before[0]}"
            yield Anomaly("reordered send", send.partition, detail)
        last[send.process, send.partition] = (offset, send.value)


def _real_time_order(partition: int, sends: list[Send]) -> Iterator[Anomaly]:
    """Sweep over begins and ends by time: a send must be above all that had ended when it began."""
    events = [(send.invoked_s, 1, send) for send in sends] + [(send.completed_s, 0, send) for send in sends]
    highest: Send | None = None
    for _, begins, send in sorted(events, key=lambda event: event[:2]):
        if begins and highest is not None and (send.offset or 0) < (highest.offset or 0):
            detail = f"{send.value!r} at {send.offset} began after {highest.value!r} at {highest.offset}"
            yield Anomaly("reordered send", partition, detail)
        elif not begins and (highest is None or (send.offset or 0) > (highest.offset or 0)):
            highest = send


def _sightings(history: History) -> Iterator[tuple[int, int, str]]:
    for send in history.sends:
        if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None:
            yield send.partition, send.offset, send.value
    for poll in history.all_polls():
        for offset, value in poll.records:
            yield poll.partition, offset, value


CHECKERS: tuple[Callable[[History], Iterator[Anomaly]], ...] = (
    revalued_offsets,
    duplicates,
    lost_writes,
    unread_again,
    aborted_reads,
    invented_values,
    disordered_polls,
    skipped_records,
    reordered_sends,
    stale_looks,
    reads_from_the_future,
)
