"""Metrics of the transactions that this broker coordinates, computed when a scrape collects them.

The metrics do not list single transactions, because their ids would make too many series. ``raftlog
transaction list`` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.coordinators.transactions import BrokerTransactions
from raftlog.clock import Clock
from transactions.fencing import IDLE
from transactions.records import State
from transactions.tally import AbortReason


class TransactionMetrics(Collector):
    """Collector of the metrics of transactions."""

    def __init__(self, transactions: BrokerTransactions, clock: Clock) -> None:
        self._transactions = transactions
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics with their current values."""
        coordinators = list(self._transactions.coordinators.values())
        led = [each.decisions.state for each in coordinators if each.decisions is not None]
        states = GaugeMetricFamily(
            "raftlog_transactions", "Transactions that are not complete.", labels=["state"]
        )
        for state in State:
            if state not in IDLE:
                states.add_metric([state.value], sum(each.open_states.of(state) for each in led))
        yield states
        yield GaugeMetricFamily(
            "raftlog_transaction_state_bytes",
            "Bytes of the transactional ids and sinks that this broker coordinates.",
            sum(state.used.total for state in led),
        )
        yield GaugeMetricFamily(
            "raftlog_idempotency_keys",
            "Keys of requests that are kept.",
            sum(len(state.requests) for state in led),
        )
        yield GaugeMetricFamily(
            "raftlog_idempotency_key_bytes",
            "Bytes that these keys and their answers count towards transactions.keys_bytes_max.",
            sum(state.keys.total for state in led),
        )
        now_ms = self._clock.wall_ms()
        oldest_ms = (state.oldest_began_ms for state in led)
        began_ms = min((each for each in oldest_ms if each is not None), default=now_ms)
        yield GaugeMetricFamily(
            "raftlog_transaction_oldest_seconds",
            "Age of the oldest transaction that is not complete.",
            max(0, now_ms - began_ms) / 1000,
        )
        tallies = [each.tally for each in coordinators]
        yield CounterMetricFamily(
            "raftlog_transactions_committed",
            "Committed transactions.",
            sum(each.committed for each in tallies),
        )
        aborted = CounterMetricFamily("raftlog_transactions_aborted", "Aborted ones.", labels=["reason"])
        for reason in AbortReason:
            aborted.add_metric([reason.value], sum(each.aborted[reason] for each in tallies))
        yield aborted
        yield GaugeMetricFamily(
            "raftlog_transaction_markers_unwritten",
            "Markers of decided transactions on their way to a partition.",
            sum(each.markers_unwritten for each in tallies),
        )
        yield CounterMetricFamily(
            "raftlog_transaction_marker_retries",
            "Failed attempts to write a marker.",
            sum(each.marker_retries for each in tallies),
        )
