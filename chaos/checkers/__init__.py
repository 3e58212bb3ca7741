"""Checks a history of sends, polls and transactions of a log for anomalies.

The anomalies concern four things: Jepsen's workload for Kafka-like logs (``tests/kafka.clj``), linearizable
reads of a log's end, committed offsets, and the ends of transactions. ``docs/chaos.md`` lists the anomalies.

Decides: what a history proves. Leaves to others: the form of a history (``chaos.history``) and files. Read
``evidence`` next: it has the version order, on which the other modules are based.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from chaos.checkers.anomaly import Anomaly, Severity, count_lost, verdict
from chaos.checkers.commits import committed_offsets
from chaos.checkers.cycles import cycles
from chaos.checkers.evidence import Evidence
from chaos.checkers.linearity import disorder_in_real_time, realtime_lags
from chaos.checkers.polls import disordered_polls
from chaos.checkers.sends import disordered_sends, torn_transactions
from chaos.checkers.transactions import decided_twice, fenced_writes, held_back, unasked_commits
from chaos.checkers.values import (
    aborted_reads,
    consume_counts,
    duplicates,
    inconsistent_offsets,
    invented_values,
    lost_writes,
    precommitted_reads,
    read_and_lost,
    reads_from_the_future,
    unseen_writes,
)
from chaos.history import History

Checker = Callable[[Evidence], Iterator[Anomaly]]

__all__ = [
    "CHECKERS",
    "Anomaly",
    "Evidence",
    "Severity",
    "check",
    "count_lost",
    "realtime_lags",
    "verdict",
]

CHECKERS: Final[tuple[Checker, ...]] = (
    inconsistent_offsets,
    duplicates,
    lost_writes,
    unseen_writes,
    read_and_lost,
    aborted_reads,
    precommitted_reads,
    invented_values,
    disordered_polls,
    disordered_sends,
    torn_transactions,
    decided_twice,
    unasked_commits,
    fenced_writes,
    held_back,
    disorder_in_real_time,
    reads_from_the_future,
    committed_offsets,
)


def check(history: History, *, exactly_once: bool = False, ww_deps: bool = True) -> list[Anomaly]:
    """Return all anomalies of a history, by kind; ``verdict`` says whether the history is valid.

    With ``exactly_once``, a value that transactions of a subscribed process read twice is a bad anomaly.
    Without ``ww_deps``, cycles of reads that depend on the order of writes are not reported.
    """
    evidence = Evidence(history)
    checkers: tuple[Checker, ...] = (
        *CHECKERS,
        partial(consume_counts, exactly_once=exactly_once),
        partial(cycles, ww_deps=ww_deps),
    )
    return [anomaly for checker in checkers for anomaly in checker(evidence)]
