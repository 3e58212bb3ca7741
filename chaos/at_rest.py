"""Checks that all transactions have ended, at the coordinators and in all partitions, without the clients
that write.

Uses plain HTTP requests, and reads only their responses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from typing import Final, TypeVar

from chaos.history import Look
from chaos.http_get import http_get
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import headers, records, transactions
from raftlog.wire.decoding import decoder_of
from raftlog.wire.transactions import TransactionList

TIMEOUT_S: Final = LIMIT_S
POLL_S: Final = 0.2

Found = TypeVar("Found", bound=Sized)


def open_transactions(url: str, prefix: str = "") -> list[str]:
    """List incomplete transactions whose transactional ids begin with ``prefix``. Raises ``OSError``."""
    body, _ = http_get(f"{url}{transactions.LIST.path}?state=open", TIMEOUT_S)
    found = decoder_of(TransactionList).decode(body).items
    return [one.id for one in found if one.transactional_id.startswith(prefix)]


def final_look(url: str, topic: str, partition: int) -> Look:
    """Read the high watermark and the last stable offset of a partition, in one response. Raises
    ``OSError``.
    """
    invoked_s = time.monotonic()
    path = f"{url}{records.FETCH.at(topic=topic, partition=partition)}?offset=0&limit=1"
    _, found = http_get(path, TIMEOUT_S)
    return Look(
        partition=partition,
        invoked_s=invoked_s,
        completed_s=time.monotonic(),
        high_watermark=int(found[headers.HIGH_WATERMARK]),
        last_stable=int(found[headers.LAST_STABLE_OFFSET]),
    )


def held_back(url: str, topic: str, partitions: int) -> list[Look]:
    """Return a look at each partition in which a transaction holds readers back from the end. Raises
    ``OSError``.
    """
    looks = [final_look(url, topic, partition) for partition in range(partitions)]
    return [look for look in looks if look.last_stable != look.high_watermark]


def until_none(find: Callable[[], Found], within_s: float) -> Found:
    """Repeat ``find`` until its result is empty or ``within_s`` has passed; return the last result.

    Raises ``OSError`` if the last attempt got no answer.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            found = find()
        except OSError:  # no broker can respond at the moment
            if time.monotonic() > deadline:
                raise
        else:
            if not found or time.monotonic() > deadline:
                return found
        time.sleep(POLL_S)
