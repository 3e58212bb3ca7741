"""What the driver does with the staged transactions of a batch: it commits all of them, or none, once.

Decides: when a batch counts as committed, and what is aborted. Leaves to others: the decision itself, which
is one record in the log of the coordinator (``client.transactions.commit_batch``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from raftlog.client import Client
from raftlog.client.blocking_producer import Producer, Transaction
from raftlog.errors import CommitUnknown, Conflict, RaftlogError
from spark_io.errors import InvalidRows

HANDLES_MAX: Final = 999  # of one batch
_PAUSE_S: Final = 0.2
_OPEN: Final = ("ongoing", "prepared")
_log = logging.getLogger("spark_io")


def begun(client: Client, producer: Producer, name: str) -> Transaction:
    """A transaction that has begun. What an earlier run has prepared under this id is aborted."""
    try:
        return producer.transaction().__enter__()
    except Conflict:
        client.transactions.abort(name)
        return producer.transaction().__enter__()


def commit(client: Client, key: str, sequence: int, handles: Sequence[str], *, timeout_s: float) -> int:
    """Commit a batch; returns the newest sequence of the sink.

    If this batch or a later one was committed before, with other handles, then ``handles`` are aborted. After
    ``CommitUnknown`` it asks again until ``timeout_s`` is over. Any other error has committed nothing.
    """
    if not handles:
        return sequence
    if len(handles) > HANDLES_MAX:
        abandon(client, key, handles)
        raise InvalidRows(
            f"{len(handles)} tasks have rows, and a batch has at most {HANDLES_MAX} of them; use "
            f"df.coalesce({HANDLES_MAX})"
        )
    try:
        _until_known(lambda: client.transactions.commit_batch(key, sequence, handles), timeout_s)
    except Conflict as error:
        newest = error.details.get("newest_sequence")
        if not isinstance(newest, int):
            raise
        _abort(client, key, handles)
        if newest == sequence:
            _sweep(client, key)  # otherwise another driver is at work, which would have to repeat its batch
        return newest
    _sweep(client, key)
    return sequence


def abandon(client: Client, key: str, handles: Sequence[str]) -> None:
    """Abort what a batch has staged, unless it is committed. Without success its time limit does it."""
    _abort(client, key, handles)
    _sweep(client, key)


def _abort(client: Client, key: str, handles: Sequence[str]) -> None:
    try:
        if handles:
            client.transactions.abort_batch(key, handles)
    except RaftlogError as error:
        _log.info("transactions of %s are not aborted: %s", key, error)


def _sweep(client: Client, key: str) -> None:
    """Abort what tasks without a message have left open, since it holds back readers."""
    try:
        for one in client.transactions.list():
            if one.transactional_id.startswith(f"{key}~") and one.state in _OPEN:
                client.transactions.abort(one.transactional_id)
    except RaftlogError as error:
        _log.warning(
            "what tasks of %s have left open holds back readers until its time is over: %s", key, error
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
