"""What the driver does with the staged transactions of a batch: it commits all of them, or none, once.

Decides: when a batch counts as committed, and what is aborted. Leaves to others: the decision itself, which
is one record in the log of the coordinator (``client.transactions.commit_batch``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raftlog.client import Client
from raftlog.client.blocking_producer import Producer, Transaction
from raftlog.errors import CommitUnknown, Conflict, ProducerFenced, RaftlogError
from spark_io.errors import InvalidRows, SinkGap, SinkInUse

HANDLES_MAX: Final = 999  # of one batch
KEY_END: Final = "~"  # of a key in the names of its transactions
_PAUSE_S: Final = 0.2
_OPEN: Final = ("ongoing", "prepared")
_log = logging.getLogger("spark_io")


class Driver(NamedTuple):
    """Who commits the batches of a stream: a query, one run of it, and whether it may take the sink over."""

    owner: str
    run: str
    takes_over: bool = False


def begun(client: Client, producer: Producer, name: str) -> Transaction:
    """A transaction that has begun. What an earlier run has prepared under this id is aborted."""
    try:
        return producer.transaction().__enter__()
    except Conflict:
        client.transactions.abort(name)
        return producer.transaction().__enter__()


def commit(
    client: Client,
    key: str,
    sequence: int,
    handles: Sequence[str],
    *,
    timeout_s: float,
    driver: Driver | None = None,
) -> int:
    """Commit a batch; returns the newest sequence of the sink. Without a ``driver`` an empty one is none.

    If this batch or a later one was committed before, with other handles, then ``handles`` are aborted. After
    ``CommitUnknown`` it asks again until ``timeout_s`` is over. Any other error has committed nothing.
    """
    if not handles and driver is None:
        return sequence
    if len(handles) > HANDLES_MAX:
        abandon(client, key, handles)
        raise InvalidRows(
            f"{len(handles)} tasks have rows, and a batch has at most {HANDLES_MAX} of them; use "
            f"df.coalesce({HANDLES_MAX})"
        )
    try:
        _until_known(lambda: _commit_batch(client, key, sequence, handles, driver), timeout_s)
    except ProducerFenced as error:
        if driver is None or "run:" not in str(error):
            raise
        raise SinkInUse(
            f"run {driver.run} of query {driver.owner} is over, and commits nothing more into {key}: "
            "a newer run has begun elsewhere; let this one end"
        ) from error
    except Conflict as error:
        newest = error.details.get("newest_sequence")
        if not isinstance(newest, int):
            raise _explained(error, key, sequence, driver) from error
        _abort(client, key, handles)
        if newest == sequence:
            _sweep(
                client, f"{key}{KEY_END}"
            )  # otherwise another driver is at work, which would have to repeat its batch
        return newest
    _sweep(client, f"{key}{KEY_END}")
    return sequence


def abandon(client: Client, key: str, handles: Sequence[str], *, tasks: str = "") -> None:
    """Abort what a batch has staged, unless it is committed. Without success its time limit does it.

    What tasks without a message have left is known by the beginning of their names, ``tasks``.
    """
    _abort(client, key, handles)
    _sweep(client, f"{key}{KEY_END}{tasks}")


def _commit_batch(
    client: Client, key: str, sequence: int, handles: Sequence[str], driver: Driver | None
) -> None:
    if driver is None:
        return client.transactions.commit_batch(key, sequence, handles)
    owner, run, takes_over = driver
    return client.transactions.commit_batch(key, sequence, handles, owner=owner, run=run, takeover=takes_over)


def _explained(error: Conflict, key: str, sequence: int, driver: Driver | None) -> Exception:
    """What the user of a sink is told, with the way out."""
    if "owner" in error.details:
        return SinkInUse(
            f"sinkId: the sink {key} belongs to the query {error.details['owner']}, and this is the query "
            f"{driver.owner if driver else ''}; use another sinkId, or set sinkTakeover=true, if the former "
            "query has ended for good"
        )
    if "expected_sequence" in error.details:
        return SinkGap(
            f"batch {sequence} of {key} does not follow the newest that the sink has committed; it expects "
            f"batch {error.details['expected_sequence']}: batches between were not written here. Use the "
            "checkpoint of this sink, or set sinkId and sinkTakeover=true to go on without them"
        )
    return error


def _abort(client: Client, key: str, handles: Sequence[str]) -> None:
    try:
        if handles:
            client.transactions.abort_batch(key, handles)
    except RaftlogError as error:
        _log.info("transactions of %s are not aborted: %s", key, error)


def _sweep(client: Client, prefix: str) -> None:
    """Abort what tasks without a message have left open, since it holds back readers."""
    try:
        for one in client.transactions.list():
            if one.transactional_id.startswith(prefix) and one.state in _OPEN:
                client.transactions.abort(one.transactional_id)
    except RaftlogError as error:
        _log.warning(
            "what tasks of %s have left open holds back readers until its time is over: %s", prefix, error
        )


def _until_known(ask: Callable[[], None], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except CommitUnknown:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)
