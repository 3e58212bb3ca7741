"""Follows the committed records of ``__transactions``: the outcomes of transactions, and the order of records
(T1, T7).

Decides: which transaction has which outcome. Leaves to others: whether the outcome was requested, and the
markers (``judge``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from transactions.batches import KEY_END
from transactions.records import (
    Handle,
    Key,
    Participant,
    Sink,
    SinkKey,
    State,
    Transaction,
    TransactionKey,
    Value,
)
from transactions.state import TransactionsState
from verification.simulator.result import Broken
from verification.simulator.scenarios.transactions.moves import ENDING, problem_of
from verification.simulator.scenarios.transactions.partition_log import Numbers
from verification.simulator.scenarios.transactions.sink_log import WHOLE, Batch, SinkLog

ONE_OUTCOME: Final = "T1 a transaction has one outcome, and somebody has asked for it"

Row = tuple[Key, Value | None]


class Decided:
    """Follows all partitions of ``__transactions``."""

    def __init__(
        self,
        on_decided: Callable[[Handle, bool], None],
        on_complete: Callable[[Handle], None],
        on_batch: Callable[[Batch, tuple[Handle, ...]], None] = lambda batch, handles: None,
    ) -> None:
        """``on_decided`` is called at an outcome's first record, ``on_complete`` at the record after the
        transaction's markers.

        ``on_batch`` is called with each committed batch of a sink and its transactions.
        """
        self.state = TransactionsState()
        self.outcomes: dict[Handle, bool] = {}
        self.partitions: dict[Handle, tuple[Participant, ...]] = {}  # that were recorded
        self._handles: dict[Numbers, Handle] = {}
        self.sinks = SinkLog()
        self._on_decided = on_decided
        self._on_complete = on_complete
        self._on_batch = on_batch

    def take(self, rows: Sequence[Row]) -> None:
        """Process the records of one committed batch. Raises ``Broken``."""
        sinks = [value for _, value in rows if isinstance(value, Sink)]
        together = {handle for sink in sinks for handle in sink.handles}
        committed: dict[Handle, Transaction] = {}
        for key, value in rows:
            if isinstance(key, TransactionKey) and isinstance(value, Transaction):
                self._move(key.transactional_id, value, together, committed)
                self.state.put(key, value)
        for key, value in rows:
            if isinstance(key, SinkKey) and isinstance(value, Sink):
                batch = self.sinks.take(key.key, self.state.sinks.get(key.key), value, committed)
                if batch is not None:
                    self._on_batch(batch, value.handles)
            if not isinstance(key, TransactionKey) or value is None:
                self.state.put(key, value)

    def handle_of(self, numbers: Numbers) -> Handle | None:
        """Return the transaction that has this producer id and epoch, or None."""
        return self._handles.get(numbers)

    def is_over(self, handle: Handle) -> bool:
        """Return whether the committed records show that a transaction accepts no more batches."""
        newest = self.state.transactions.get(handle.transactional_id)
        if newest is None:
            return False
        if newest.run_epoch:  # also one that has not begun when another run registers
            sink = self.state.sinks.get(handle.transactional_id.partition(KEY_END)[0])
            if sink is not None and sink.epoch > newest.run_epoch:
                return True
        is_newest = (newest.producer_id, newest.epoch) == (handle.producer_id, handle.epoch)
        if is_newest:
            return newest.state in (*ENDING, State.PREPARED)
        return newest.producer_id != handle.producer_id or newest.epoch > handle.epoch

    def _move(
        self, name: str, after: Transaction, together: set[Handle], committed: dict[Handle, Transaction]
    ) -> None:
        before = self.state.transactions.get(name)
        handle = Handle(name, after.producer_id, after.epoch)
        self._handles[after.producer_id, after.epoch] = handle
        self.partitions[handle] = after.partitions
        if before is not None:
            self._check_order(Handle(name, before.producer_id, before.epoch), before, handle, after)
        if after.state in ENDING:
            is_commit = after.state is State.PREPARE_COMMIT
            if is_commit and before is not None and before.state is State.PREPARED and handle not in together:
                raise Broken(WHOLE, f"{handle} is prepared, and committed alone")
            if is_commit:
                committed[handle] = after
            self._decide(handle, is_commit)
        if after.last is not None:
            self._decide(Handle(name, after.last.producer_id, after.last.epoch), after.last.is_committed)

    def _check_order(self, old: Handle, before: Transaction, new: Handle, after: Transaction) -> None:
        if (problem := problem_of(before, after)) is not None:
            raise Broken(ONE_OUTCOME, f"{old}, then {new}: {problem}; {before}, {after}")
        if old != new and before.state in ENDING:
            self._on_complete(old)

    def _decide(self, handle: Handle, is_commit: bool) -> None:
        known = self.outcomes.get(handle)
        if known is None:
            self.outcomes[handle] = is_commit
            self._on_decided(handle, is_commit)
        elif known is not is_commit:
            raise Broken(ONE_OUTCOME, f"{handle}: is_commit was {known}, and is {is_commit}")
