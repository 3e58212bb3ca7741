"""Batches of sinks: prepared transactions that are committed together.

All transactional ids of a sink begin with the sink's key, and the key selects the coordinator. So one batch
of records in ``__transactions`` holds the sequence of the sink's batch and the decision about each
transaction of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced
from raftlog.hosting.decisions import RECORDS_PER_BATCH
from raftlog.records.keys import partition_for_key
from raftlog.wire.limits import NAME_CHARACTERS_MAX
from transactions.fencing import is_newest, outcome_of, why_closed
from transactions.records import KINDS, Handle, Sink, State, Transaction, TransactionKey
from transactions.state import TransactionsState

KEY_END: Final = "~"  # of a sink's key in a transactional id
HANDLES_MAX: Final = RECORDS_PER_BATCH - 1  # the row of the sink is in the same batch
PARTICIPANT_BYTES_MAX: Final = NAME_CHARACTERS_MAX + 16  # of a partition or a group in a row

Existing = Callable[[str], Transaction]
Chosen = list[tuple[str, Transaction]]


def partition_of(transactional_id: str, count: int) -> int:
    """The partition of ``__transactions`` that coordinates a transactional id, or the key of a sink."""
    return partition_for_key(transactional_id.partition(KEY_END)[0].encode(), count)


def check_sink(transactional_id: str) -> None:
    """Raise ``InvalidRequest`` for a transactional id that no sink can commit."""
    key, end, rest = transactional_id.partition(KEY_END)
    if not key or not end or not rest:
        raise InvalidRequest(
            f"transactional_id: {transactional_id!r} cannot be prepared; begin it with the key of its sink "
            f"and {KEY_END!r}, as in 'sink~task-1'",
            field="transactional_id",
        )


def chosen(key: str, handles: Sequence[Handle], existing: Existing, bytes_max: int) -> Chosen:
    """The transactions that a batch commits.

    Raises the error of a handle whose transaction is not prepared, and ``InvalidRequest`` if the decision
    exceeds ``bytes_max``.
    """
    _check_handles(key, handles)
    found: Chosen = []
    for handle in handles:
        transaction = existing(handle.transactional_id)
        if not is_newest(handle, transaction) or transaction.state is not State.PREPARED:
            error = why_closed(handle, transaction)
            raise error or Conflict(f"transactions: transaction {handle} is not prepared; prepare it first")
        found.append((handle.transactional_id, transaction))
    _check_size(found, bytes_max)
    return found


def check_repeated(key: str, sequence: int, handles: Sequence[Handle], before: Sink) -> None:
    """Raise ``Conflict`` unless this batch is the newest batch of its sink, with equal transactions."""
    if sequence < before.sequence:
        raise Conflict(
            f"sequence: batch {sequence} of sink {key!r} is not the newest, which is {before.sequence}: stop "
            "this writer, as another one has continued",
            newest_sequence=before.sequence,
        )
    if tuple(sorted(handles)) != before.handles:
        raise Conflict(
            f"transactions: batch {sequence} of sink {key!r} was committed with other transactions; repeat "
            "a batch unchanged",
            newest_sequence=before.sequence,
        )


def abortable(key: str, handles: Sequence[Handle], existing: Existing) -> Chosen:
    """The transactions of a batch that are still open. Raises ``Conflict`` for a committed transaction."""
    _check_handles(key, handles)
    found: Chosen = []
    for handle in handles:
        transaction = existing(handle.transactional_id)
        if not is_newest(handle, transaction):
            with suppress(ProducerFenced):  # the transaction has no records
                if outcome_of(handle, transaction).is_committed:
                    raise _committed(handle)
        elif transaction.state is State.PREPARE_COMMIT:
            raise _committed(handle)
        elif transaction.state in (State.ONGOING, State.PREPARED):
            found.append((handle.transactional_id, transaction))
    return found


def open_of(key: str, state: TransactionsState) -> Chosen:
    """The open transactions of a sink, prepared or not.

    The cost does not depend on the number of other sinks.
    """
    named = ((name, state.open[name]) for name in state.open_names.beginning_with(key + KEY_END))
    return [(name, found) for name, found in named if found.state in (State.ONGOING, State.PREPARED)]


def still_prepared(name: str) -> Conflict:
    """The error for an ``Open`` that would abort a prepared transaction of a sink."""
    return Conflict(f"transactional id {name!r} has a prepared transaction: first commit or abort its batch")


def not_alone(name: str) -> Conflict:
    """The error for a commit of one transaction of a batch without the batch."""
    return Conflict(f"the transaction of {name!r} is prepared: commit it with its batch")


def _check_size(found: Chosen, bytes_max: int) -> None:
    """Raise ``InvalidRequest`` if the decision about these transactions exceeds ``bytes_max``."""
    participants = sum(len(one.partitions) + len(one.groups) for _, one in found)
    if participants * PARTICIPANT_BYTES_MAX <= bytes_max:
        return
    size_bytes = sum(len(KINDS.record_of(TransactionKey(name), one).value or b"") for name, one in found)
    if size_bytes > bytes_max:
        raise InvalidRequest(
            f"transactions: the decision about {len(found)} transactions with {participants} partitions and "
            f"groups has {size_bytes} bytes, more than {bytes_max}: abort the batch, and write it with "
            "fewer tasks, or to fewer partitions in each",
            field="transactions",
        )


def _committed(handle: Handle) -> Conflict:
    return Conflict(f"transactions: transaction {handle} is committed, so no transaction was aborted")


def _check_handles(key: str, handles: Sequence[Handle]) -> None:
    if len(handles) > HANDLES_MAX:
        raise InvalidRequest(
            f"transactions: the batch has {len(handles)} transactions; send at most {HANDLES_MAX}",
            field="transactions",
        )
    names = {handle.transactional_id for handle in handles}
    if len(names) < len(handles):
        raise InvalidRequest("transactions: a transactional id is named twice", field="transactions")
    for name in names:
        if not name.startswith(key + KEY_END):
            raise InvalidRequest(
                f"transactions: {name!r} does not belong to sink {key!r}, whose ids begin with "
                f"{key + KEY_END!r}",
                field="transactions",
            )
