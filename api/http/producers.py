"""Reads the headers of a produce that name its producer or its transaction.

Decides: which combinations of these headers are valid. Leaves to others: whether the transaction is open
(``transactions``), duplicates (``partitions.replica.producers``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from api.http.parameters import PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE
from api.http.requests import Request
from raftlog.errors import InvalidRequest
from raftlog.wire import headers
from transactions.records import RESERVED, Handle

NO_SEQUENCE: Final = -1
_NAMES: Final = (headers.PRODUCER_ID, headers.PRODUCER_EPOCH, headers.PRODUCER_SEQUENCE)


class Producer(NamedTuple):
    """The producer of a request's records, and their transaction if they have one."""

    producer_id: int
    epoch: int
    sequence: int  # of the first record; ``NO_SEQUENCE`` only in a transaction
    transactional_id: str | None

    @property
    def is_sequenced(self) -> bool:
        """Whether repeated records are recognised, because they have a sequence. Records without a sequence
        need not fit in one batch.
        """
        return self.sequence != NO_SEQUENCE


def handle_of(text: str, field: str) -> Handle:
    """Parse the id of a transaction. Raises ``InvalidRequest``."""
    found = Handle.parse(text)
    if found is None:
        raise InvalidRequest(
            f"{field} is {text[:64]!r}; send the id from the response to POST /v1/transactions, "
            "such as copy-1@4711.0",
            field=field,
        )
    return found


def own_id(transactional_id: str, field: str) -> str:
    """Check the transactional id of a client. Raises ``InvalidRequest`` for ids that belong to brokers."""
    if transactional_id.startswith(RESERVED):
        raise InvalidRequest(
            f"{field} begins with {RESERVED}: such transactional ids belong to brokers; choose another",
            field=field,
        )
    return transactional_id


def own_handle_of(text: str, field: str) -> Handle:
    """Parse the id of a transaction that belongs to a client, which may write to it and commit it."""
    handle = handle_of(text, field)
    own_id(handle.transactional_id, field)
    return handle


def transaction_of(request: Request) -> Handle | None:
    """Return the transaction that a request belongs to; None without one."""
    text = request.headers.get(headers.TRANSACTION)
    return None if text is None else own_handle_of(text, headers.TRANSACTION)


def producer_of(request: Request) -> Producer | None:
    """Read the producer id, epoch and sequence, or the transaction and perhaps a sequence; None if a request
    has none of these.
    """
    handle = transaction_of(request)
    if handle is not None:
        return Producer(handle.producer_id, handle.epoch, _sequence_in(request), handle.transactional_id)
    texts = [request.headers.get(name) for name in _NAMES]
    given = [text for text in texts if text is not None]
    if not given:
        return None
    if len(given) < len(_NAMES):
        missing = next(name for name, text in zip(_NAMES, texts, strict=True) if text is None)
        raise InvalidRequest(
            f"the header {missing} is missing; send all of {', '.join(_NAMES)} or none", field=missing
        )
    producer_id = PRODUCER_ID.read(given[0], _NAMES[0])
    epoch = PRODUCER_EPOCH.read(given[1], _NAMES[1])
    return Producer(producer_id, epoch, PRODUCER_SEQUENCE.read(given[2], _NAMES[2]), None)


def _sequence_in(request: Request) -> int:
    for name in _NAMES[:2]:
        if name in request.headers:
            raise InvalidRequest(
                f"{name} cannot be combined with {headers.TRANSACTION}: a transaction has its own producer",
                field=name,
            )
    text = request.headers.get(headers.PRODUCER_SEQUENCE)
    return NO_SEQUENCE if text is None else PRODUCER_SEQUENCE.read(text, headers.PRODUCER_SEQUENCE)
