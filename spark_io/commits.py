"""Commits the staged transactions of a batch on the driver: all of them or none, once.

Decides: when a batch counts as committed, and which transactions are aborted. Leaves to others: the atomic
commit, which is one record in the log of the coordinator (``client.transactions.commit_batch``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from raftlog.errors import CommitUnknown, Conflict, ProducerFenced, RaftlogError
from spark_io.errors import InvalidRows, SinkAhead, SinkGap, SinkInUse

if TYPE_CHECKING:
    from raftlog.client import Client
    from raftlog.client.blocking_producer import Producer, Transaction

TRANSACTIONS_MAX: Final = 999  # of one batch
KEY_END: Final = "~"  # ends the key in the names of its transactions
_PAUSE_S: Final = 0.2
_OPEN: Final = ("ongoing", "prepared")
_log = logging.getLogger("spark_io")


class Run(NamedTuple):
    """One start of a query, as registered with the sink. A run without an epoch has nothing to write."""

    owner: str
    name: str
    epoch: int | None


def begin_run(
    client: Client, key: str, sequence: int, *, owner: str, run: str, takes_over: bool
) -> tuple[Run, bool]:
    """Register a run that is about to write a batch. Returns the run, and whether the batch is committed.

    The run fences all earlier runs. Raises ``SinkInUse``, ``SinkGap``, ``SinkAhead``.
    """
    try:
        begun = client.transactions.begin_run(
            key, owner=owner, run=run, sequence=sequence, takeover=takes_over
        )
    except ProducerFenced as error:
        raise _over(key, owner, run) from error
    except Conflict as error:
        raise _explained(error, key, sequence, owner) from error
    return Run(owner, run, begun.run_epoch), begun.committed


def begun(client: Client, producer: Producer, name: str) -> Transaction:
    """Begin a transaction.

    If an earlier attempt has prepared a transaction with this id, abort that first.
    """
    try:
        return producer.transaction().__enter__()
    except Conflict:
        prepared = client.transactions.describe(name).id  # no other transaction: a newer run may have one
        client.transactions.abort_batch(name.partition(KEY_END)[0], [prepared])
        return producer.transaction().__enter__()


def commit(
    client: Client,
    key: str,
    sequence: int,
    transactions: Sequence[str],
    *,
    timeout_s: float,
    run: Run | None = None,
) -> int:
    """Commit a batch; returns the newest sequence of the sink. Without a ``run`` skips an empty batch.

    If this batch was committed before with other transactions, or if a later batch was committed,
    ``transactions`` are aborted. After ``CommitUnknown`` the request is repeated until ``timeout_s`` is over.
    After any other error the batch is not committed.
    """
    if not transactions and run is None:
        return sequence
    if len(transactions) > TRANSACTIONS_MAX:
        abandon(client, key, transactions, run=run)
        raise InvalidRows(
            f"{len(transactions)} tasks have rows, but a batch has at most {TRANSACTIONS_MAX} of them; use "
            f"df.coalesce({TRANSACTIONS_MAX})"
        )
    name, epoch = (None, None) if run is None else (run.name, run.epoch)
    try:
        _until_known(
            lambda: client.transactions.commit_batch(key, sequence, transactions, run=name, run_epoch=epoch),
            timeout_s,
        )
    except ProducerFenced as error:
        if run is None or "run:" not in str(error):
            raise
        raise _over(key, run.owner, run.name) from error
    except Conflict as error:
        newest = error.details.get("newest_sequence")
        if not isinstance(newest, int):
            raise _explained(error, key, sequence, "" if run is None else run.owner) from error
        _abort(client, key, transactions, run)
        if newest == sequence and run is None:
            _sweep(client, key)  # else another driver is at work, and would have to repeat its batch
        return newest
    if run is None:
        _sweep(client, key)
    return sequence


def abandon(client: Client, key: str, transactions: Sequence[str], *, run: Run | None = None) -> None:
    """Abort the staged transactions of a batch unless it is committed.

    If this fails, the transactions end at their timeout. Transactions of tasks that sent no message are found
    by their ``run``, or without a run by the key of the sink.
    """
    _abort(client, key, transactions, run)
    if run is None:
        _sweep(client, key)


def _over(key: str, owner: str, run: str) -> SinkInUse:
    return SinkInUse(
        f"run {run} of query {owner} can no longer write to {key}: a newer run has begun elsewhere; "
        "stop this run"
    )


def _explained(error: Conflict, key: str, sequence: int, owner: str) -> Exception:
    """The error for users that explains a conflict, with the remedy.

    An unknown conflict is returned unchanged.
    """
    if "owner" in error.details:
        return SinkInUse(
            f"sinkId: the sink {key} belongs to the query {error.details['owner']}, and this is the query "
            f"{owner}; use another sinkId, or set sinkTakeover=true if the former query will not run again"
        )
    if "expected_sequence" in error.details:
        return SinkGap(
            f"batch {sequence} of {key} does not follow the newest batch of the sink, which expects batch "
            f"{error.details['expected_sequence']}: the batches between were not written to this sink. Use "
            "the checkpoint of this sink, or set sinkId and sinkTakeover=true to continue without them"
        )
    newest = error.details.get("newest_sequence")
    return ahead(key, sequence, newest) if isinstance(newest, int) else error


def ahead(key: str, sequence: int, newest: int) -> SinkAhead:
    """The error for a batch before the newest batch of the sink."""
    return SinkAhead(
        f"batch {sequence} of {key} is too old, the sink has committed batch {newest}: another driver runs "
        "this query, or the checkpoint was restored from a copy; stop this query, or use a new "
        "checkpointLocation and startingOffsets"
    )


def _abort(client: Client, key: str, transactions: Sequence[str], run: Run | None) -> None:
    epoch = None if run is None else run.epoch
    try:
        if transactions or epoch:
            client.transactions.abort_batch(key, transactions, run_epoch=epoch)
    except RaftlogError as error:
        _log.info("could not abort transactions of %s, which end at their timeout: %s", key, error)


def _sweep(client: Client, key: str) -> None:
    """Abort open transactions of tasks that sent no message: open transactions hold back readers."""
    prefix = f"{key}{KEY_END}"
    try:
        for one in client.transactions.list():
            if one.transactional_id.startswith(prefix) and one.state in _OPEN:
                client.transactions.abort(one.transactional_id)
    except RaftlogError as error:
        _log.warning("open transactions of %s hold back readers until their timeout: %s", prefix, error)


def _until_known(ask: Callable[[], None], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except CommitUnknown:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)
