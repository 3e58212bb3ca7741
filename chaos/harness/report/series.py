"""Computes the data of a report's timeline from a history and a record, by pure functions.

All data is aggregated by time, so that its size depends on the width of a drawing, not on the load.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from api.svg import STEPS_S
from chaos.harness.record import Leadership, RunRecord
from chaos.history import Outcome, Send

UNAVAILABLE_MIN_S: Final = 0.5
BUCKETS_MAX: Final = 800  # about one bucket for each pixel


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the run, by its start and end in seconds."""

    begun_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """The length of the span in seconds."""
        return self.ended_s - self.begun_s


@dataclass(frozen=True, slots=True)
class Led(Span):
    """A part of the run in which a partition had this leader, or had no leader."""

    leader: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """The throughput and latencies of acknowledged sends in buckets of equal length, by the time of the
    acknowledgement.

    A bucket without sends has no latencies.
    """

    bucket_s: int
    per_second: tuple[float, ...]
    p50_s: tuple[float | None, ...]
    p99_s: tuple[float | None, ...]


def run_seconds(record: RunRecord) -> float:
    """Return the length of the time axis in seconds: at least one."""
    ends = [phase.ended_s for phase in record.phases] + [fault.ended_s for fault in record.injected]
    return max(1.0, *ends) if ends else max(1.0, record.scenario.seconds)


def load(sends: Iterable[Send], start_s: float, seconds: float) -> Load:
    """Compute throughput and latencies of a run. The run began at ``start_s`` of the history's clock."""
    bucket_s = next((step for step in STEPS_S if seconds / step <= BUCKETS_MAX), STEPS_S[-1])
    count = math.ceil(seconds / bucket_s)
    latencies: list[list[float]] = [[] for _ in range(count)]
    for send in sends:
        if send.outcome is Outcome.ACKNOWLEDGED:
            number = int((send.completed_s - start_s) // bucket_s)
            if 0 <= number < count:
                latencies[number].append(send.completed_s - send.invoked_s)
    for found in latencies:
        found.sort()
    lengths = [min(bucket_s, seconds - number * bucket_s) for number in range(count)]
    return Load(
        bucket_s,
        tuple(len(found) / length for found, length in zip(latencies, lengths, strict=True)),
        tuple(_percentile(found, 0.5) for found in latencies),
        tuple(_percentile(found, 0.99) for found in latencies),
    )


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the percentile of ordered values by nearest rank; None without values."""
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def unavailability(
    sends: Iterable[Send], start_s: float, seconds: float, min_s: float = UNAVAILABLE_MIN_S
) -> dict[int, list[Span]]:
    """Return, by partition, the spans longer than ``min_s`` in which clients waited for sends but got no
    acknowledgement.

    Pauses of up to ``min_s`` between two sends of clients do not end a span.
    """
    by_partition: dict[int, list[Send]] = defaultdict(list)
    for send in sends:
        by_partition[send.partition].append(send)
    return {
        partition: [
            Span(begun_s - start_s, ended_s - start_s)
            for begun_s, ended_s in _silences(found, start_s + seconds, min_s)
            if ended_s - begun_s > min_s
        ]
        for partition, found in sorted(by_partition.items())
    }


def _silences(sends: Sequence[Send], end_s: float, min_s: float) -> list[tuple[float, float]]:
    """Return the spans, however short, in which sends to one partition waited and none of them was
    acknowledged.
    """
    acknowledged = {send.completed_s for send in sends if send.outcome is Outcome.ACKNOWLEDGED}
    found: list[tuple[float, float]] = []
    for begun_s, ended_s in _under_way(sends, acknowledged, end_s):
        last = found[-1] if found else None
        if last and last[1] not in acknowledged and begun_s - last[1] <= min_s:
            found[-1] = (last[0], ended_s)
        else:
            found.append((begun_s, ended_s))
    return found


def _under_way(sends: Sequence[Send], cuts: set[float], end_s: float) -> list[tuple[float, float]]:
    """Return the union of the times from the start to the end of these sends, up to ``end_s``, split at the
    times ``cuts``.
    """
    changes: dict[float, int] = dict.fromkeys(cuts, 0)
    for send in sends:
        changes[send.invoked_s] = changes.get(send.invoked_s, 0) + 1
        changes[send.completed_s] = changes.get(send.completed_s, 0) - 1
    found: list[tuple[float, float]] = []
    open_ = 0
    for moment, following in pairwise([*sorted(moment for moment in changes if moment < end_s), end_s]):
        open_ += changes[moment]
        if open_ and found and found[-1][1] == moment and moment not in cuts:
            found[-1] = (found[-1][0], following)
        elif open_:
            found.append((moment, following))
    return found


def thinned(spans: Sequence[Span], gap_s: float, count_max: int = 400) -> list[Span]:
    """Return the spans. If there are more than ``count_max``, joins spans whose distance is below
    ``gap_s``.
    """
    if len(spans) <= count_max:
        return list(spans)
    found: list[Span] = []
    for span in spans:
        if found and span.begun_s - found[-1].ended_s < gap_s:
            found[-1] = Span(found[-1].begun_s, span.ended_s)
        else:
            found.append(span)
    return found


def leaders(leaderships: Sequence[Leadership], seconds: float) -> dict[tuple[str, int], list[Led]]:
    """Return the leaders of each partition over time. A new term of a leader does not begin a new span.

    The leader is None before the first known leader.
    """
    changes: dict[tuple[str, int], list[Leadership]] = defaultdict(list)
    for change in sorted(leaderships, key=lambda change: change.at_s):
        key = change.topic, change.partition
        if not changes[key] or changes[key][-1].leader != change.leader:
            changes[key].append(change)
    found: dict[tuple[str, int], list[Led]] = {}
    for key, rows in sorted(changes.items()):
        ends = [*(row.at_s for row in rows[1:]), max(seconds, rows[-1].at_s)]
        found[key] = [Led(row.at_s, end_s, row.leader) for row, end_s in zip(rows, ends, strict=True)]
    return found


def coarsened(spans: Sequence[Led], seconds: float, slots: int = 600) -> list[Led]:
    """Return the spans. If there are more than ``slots``, divides the run into parts and returns the leader
    that led longest in each part.
    """
    if len(spans) <= slots:
        return list(spans)
    slot_s = seconds / slots
    shares: list[dict[int | None, float]] = [defaultdict(float) for _ in range(slots)]
    for span in spans:
        for number in range(int(span.begun_s / slot_s), min(slots, math.ceil(span.ended_s / slot_s))):
            inside_s = min(span.ended_s, (number + 1) * slot_s) - max(span.begun_s, number * slot_s)
            shares[number][span.leader] += inside_s
    found: list[Led] = []
    for number, share in enumerate(shares):
        if share:
            leader = max(share, key=lambda broker: share[broker])
            begun_s, ended_s = number * slot_s, (number + 1) * slot_s
            if found and found[-1].leader == leader and math.isclose(found[-1].ended_s, begun_s):
                found[-1] = Led(found[-1].begun_s, ended_s, leader)
            else:
                found.append(Led(begun_s, ended_s, leader))
    return found


def rows(spans: Sequence[tuple[float, float]]) -> list[int]:
    """Return the row of each span, in the order of their starts: the first row in which it overlaps no
    earlier span.
    """
    ends: list[float] = []
    found = []
    for begun_s, ended_s in spans:
        row = next((number for number, end_s in enumerate(ends) if end_s <= begun_s), len(ends))
        ends[row : row + 1] = [ended_s]
        found.append(row)
    return found


def round_up(number: float) -> float:
    """Return the next round number, for the end of an axis."""
    if number <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    factors = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    return next(power * factor for factor in factors if power * factor >= number * (1 - 1e-9))
