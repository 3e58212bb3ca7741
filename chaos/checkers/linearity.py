"""Checks appends and linearizable reads of the end against real time, and measures the lag of polls.

One pass over the operations by time keeps running maxima: an operation that begins is compared with all
operations that had ended before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.anomaly import Anomaly
from chaos.checkers.evidence import Evidence
from chaos.history import History, Look, Outcome, Send

_Known = tuple[float, int, int, bool]  # time, partition, one past the highest offset, whether from a send


def disorder_in_real_time(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield sends whose offset is below an offset that was known before they began, and reads of an end lower
    than such an offset.
    """
    yield from _falling_stable_ends(evidence.history)
    known = _known(evidence.history)
    known += [
        (look.completed_s, look.partition, look.high_watermark, False) for look in evidence.history.looks
    ]
    known.sort()
    ends: dict[int, int] = {}
    acknowledged: dict[int, int] = {}
    at, count = 0, len(known)
    begins: list[Send | Look] = [*evidence.history.sends, *evidence.history.looks]
    begins.sort(key=lambda operation: operation.invoked_s)
    for operation in begins:
        while at < count and known[at][0] < operation.invoked_s:
            _, partition, end, is_send = known[at]
            if end > ends.get(partition, 0):
                ends[partition] = end
            if is_send and end > acknowledged.get(partition, 0):
                acknowledged[partition] = end
            at += 1
        end = ends.get(operation.partition, 0)
        if isinstance(operation, Look):
            if operation.high_watermark < end:
                detail = f"the end was {operation.high_watermark}, after {end} was known"
                yield Anomaly("stale-read", operation.partition, detail)
            continue
        offset = _offset(evidence, operation)
        if offset is not None and offset < end:
            after = acknowledged.get(operation.partition, 0)
            detail = f"{operation.value!r} at {offset} began after"
            if offset < after:
                detail = f"{detail} {after - 1} was acknowledged"
                yield Anomaly("realtime-nonmonotonic-send", operation.partition, detail)
            else:
                yield Anomaly("read-from-the-future", operation.partition, f"{detail} the end was {end}")


def _falling_stable_ends(history: History) -> Iterator[Anomaly]:
    """Yield last stable offsets that are lower than a last stable offset known before their request."""
    looks = [look for look in history.looks if look.last_stable is not None]
    known = sorted((look.completed_s, look.partition, look.last_stable or 0) for look in looks)
    ends: dict[int, int] = {}
    at = 0
    for look in sorted(looks, key=lambda look: look.invoked_s):
        while at < len(known) and known[at][0] < look.invoked_s:
            _, partition, end = known[at]
            ends[partition] = max(ends.get(partition, 0), end)
            at += 1
        before = ends.get(look.partition, 0)
        if look.last_stable is not None and look.last_stable < before:
            detail = f"the last stable offset was {look.last_stable}, after {before} was known"
            yield Anomaly("stale-read", look.partition, detail)


def _known(history: History) -> list[_Known]:
    known = [
        (send.completed_s, send.partition, send.offset + 1, True)
        for send in history.sends
        if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None
    ]
    known += [
        (poll.completed_s, poll.partition, poll.records[-1][0] + 1, False)
        for poll in history.all_polls()
        if poll.records
    ]
    return known


def _offset(evidence: Evidence, send: Send) -> int | None:
    if send.outcome is Outcome.FAILED:
        return None
    if send.offset is not None:
        return send.offset
    order = evidence.orders.get(send.partition)
    place = None if order is None else order.index.get(send.value)
    return None if order is None or place is None else order.offsets[place]


def realtime_lags(history: History) -> Iterator[tuple[int, float]]:
    """Yield for each poll its partition, and the seconds for which its next offset had been known when it
    began.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    ends: defaultdict[int, list[int]] = defaultdict(list)  # rising with ``times``
    for at_s, partition, end, _ in sorted(_known(history)):
        if not ends[partition] or end > ends[partition][-1]:
            times[partition].append(at_s)
            ends[partition].append(end)
    position: dict[tuple[int, int], int] = {}
    for poll in history.all_polls():
        key = poll.process, poll.partition
        if poll.records:
            position[key] = poll.records[-1][0] + 1
        place = bisect_right(ends[poll.partition], max(position.get(key, 0), poll.log_start))
        exists = place < len(ends[poll.partition])
        yield poll.partition, max(0.0, poll.invoked_s - times[poll.partition][place]) if exists else 0.0
