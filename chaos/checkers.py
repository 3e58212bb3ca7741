"""The judge: what a history of sends and polls of a log must never show.

The anomalies are those of Jepsen's workload for Kafka-like logs (``tests/kafka.clj``), without
transactions. Each function takes a history and names what it found; an empty list is innocence,
as far as the history can tell. Linear in the number of operations but for one sort.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.history import History, Outcome, Send


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that must not be."""

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
            yield Anomaly("duplicate", partition, f"{value!r} stands at {first} and {offset}")


def lost_writes(history: History) -> Iterator[Anomaly]:
    """An acknowledged value is not in the final read."""
    read = {(poll.partition, value) for poll in history.final for _, value in poll.records}
    for send in history.sends:
        if send.outcome is Outcome.ACKNOWLEDGED and (send.partition, send.value) not in read:
            yield Anomaly("lost write", send.partition, f"{send.value!r} was acknowledged at {send.offset}")


def unread_again(history: History) -> Iterator[Anomaly]:
    """A value that some poll returned is not in the final read: it was shown and then lost."""
    read = {(poll.partition, value) for poll in history.final for _, value in poll.records}
    for poll in history.polls:
        for offset, value in poll.records:
            if (poll.partition, value) not in read:
                yield Anomaly("read and lost", poll.partition, f"{value!r} was read at {offset}")


def aborted_reads(history: History) -> Iterator[Anomaly]:
    """A value whose send surely failed was read."""
    failed = {(send.partition, send.value) for send in history.sends if send.outcome is Outcome.FAILED}
    for poll in [*history.polls, *history.final]:
        for offset, value in poll.records:
            if (poll.partition, value) in failed:
                yield Anomaly("aborted read", poll.partition, f"{value!r} failed and stands at {offset}")


def invented_values(history: History) -> Iterator[Anomaly]:
    """A value was read that nobody sent to that partition."""
    sent = {(send.partition, send.value) for send in history.sends}
    for poll in [*history.polls, *history.final]:
        for offset, value in poll.records:
            if (poll.partition, value) not in sent:
                yield Anomaly("invented value", poll.partition, f"{value!r} stands at {offset}")


def disordered_polls(history: History) -> Iterator[Anomaly]:
    """Inside one poll, or from one poll of a process to its next, offsets did not rise."""
    last: dict[tuple[int, int], int] = {}
    for poll in [*history.polls, *history.final]:
        key = (poll.process, poll.partition)
        for offset, value in poll.records:
            if offset <= last.get(key, -1):
                yield Anomaly("reordered poll", poll.partition, f"{value!r} at {offset} after {last[key]}")
            last[key] = offset


def reordered_sends(history: History) -> Iterator[Anomaly]:
    """A send that began after another had been acknowledged stands before it (real time), for
    all processes; and the values of one process stand in the order it sent them.
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
    """Sweep over begins and ends by time: a send must stand above all that had ended when it began."""
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
    for poll in [*history.polls, *history.final]:
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
    reordered_sends,
)
