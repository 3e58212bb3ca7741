"""Checks how transactions end: once, as requested, not by a fenced process, and in every partition.

The modules ``sends`` (torn transactions) and ``values`` (aborted transactions) check what readers see of
transactions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.anomaly import Anomaly
from chaos.checkers.evidence import Evidence
from chaos.history import Decision, End, History, Open, Outcome


def decided_twice(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield transactions for which one response reported a commit and another an abort."""
    for txn, ends in _by_transaction(evidence.history).items():
        if len({end.decided for end in ends} - {None}) > 1:
            yield Anomaly("decided-twice", -1, f"{f'transaction {txn}'!r} was committed and aborted")


def unasked_commits(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield transactions that were committed before a client had requested the commit."""
    for txn, ends in _by_transaction(evidence.history).items():
        asked_s = min((end.invoked_s for end in ends if end.asked is Decision.COMMITTED), default=math.inf)
        told_s = min((end.completed_s for end in ends if end.decided is Decision.COMMITTED), default=math.inf)
        if told_s < asked_s:
            yield Anomaly("unasked-commit", -1, f"{f'transaction {txn}'!r} was committed before any request")


def fenced_writes(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield sends and commits that took effect although they began after another process had opened their
    transactional id.
    """
    fenced = _fenced(evidence.history.opens)
    if not fenced:
        return
    for send in evidence.history.sends:
        if send.txn is None or send.invoked_s <= fenced.get(send.process, math.inf):
            continue
        if send.offset is not None or evidence.was_read(send):
            detail = f"process {send.process} was fenced, and its send of {send.value!r} was stored"
            yield Anomaly("fenced-write", send.partition, detail)
    for txn, ends in _by_transaction(evidence.history).items():
        commits = [end for end in ends if end.asked is Decision.COMMITTED]
        is_late = all(end.invoked_s > fenced.get(end.process, math.inf) for end in commits)
        if is_late and any(end.decided is Decision.COMMITTED for end in commits):
            detail = f"process {commits[0].process} was fenced, and then committed {f'transaction {txn}'!r}"
            yield Anomaly("fenced-write", -1, detail)


def _by_transaction(history: History) -> dict[int, list[End]]:
    found: defaultdict[int, list[End]] = defaultdict(list)
    for end in history.ends:
        found[end.txn].append(end)
    return found


def _fenced(opens: list[Open]) -> dict[int, float]:
    """Return the time at which each process was fenced: at the first response to another process's opening
    that began after its own opening.
    """
    by_id: defaultdict[str, list[Open]] = defaultdict(list)
    for one in opens:
        if one.outcome is Outcome.ACKNOWLEDGED:
            by_id[one.transactional_id].append(one)
    fenced: dict[int, float] = {}
    for same in by_id.values():
        for one in same:
            later = [other.completed_s for other in same if other.invoked_s > one.completed_s]
            if later:
                fenced[one.process] = min(later)
    return fenced


def held_back(evidence: Evidence) -> Iterator[Anomaly]:
    """Yield partitions in which a transaction still holds readers back at the end of the run."""
    last = {look.partition: look for look in evidence.history.final_looks}
    for partition, look in last.items():
        if look.last_stable is not None and look.last_stable < look.high_watermark:
            detail = f"readers end at {look.last_stable}, and the log ends at {look.high_watermark}"
            yield Anomaly("held-back", partition, detail)
