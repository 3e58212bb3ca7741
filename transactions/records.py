"""Records of the topic ``__transactions``: the format that readers of the topic rely on.

All internal topics share the encoding (``raftlog.hosting.keyed_records``).
"""

from __future__ import annotations

import enum
import re
from typing import Final

import msgspec

from raftlog.hosting.keyed_records import KeyedRecords
from raftlog.records.batch import EPOCH_MAX
from raftlog.wire.limits import NAME_CHARACTERS_MAX

TOPIC: Final = "__transactions"
EPOCH_LAST: Final = EPOCH_MAX - 1  # highest epoch of a transaction; the epoch above it only fences

RESERVED: Final = "__"
"""Prefix of the transactional ids that brokers use themselves (``one_shot``)."""

TRANSACTIONAL_ID: Final = rf"[A-Za-z0-9._~-]{{1,{NAME_CHARACTERS_MAX}}}"
_HANDLE: Final = re.compile(
    rf"(?P<name>{TRANSACTIONAL_ID})@(?P<producer>[0-9]{{1,19}})\.(?P<epoch>[0-9]{{1,5}})"
)

_PRODUCER_ID_MAX: Final = (1 << 63) - 1

Participant = tuple[str, int]
"""Topic and number of a partition that takes part in a transaction."""


class State(enum.StrEnum):
    """The state of a transactional id."""

    EMPTY = "empty"  # opened; the transaction has no partition yet
    ONGOING = "ongoing"
    PREPARED = "prepared"  # accepts no further batches, and waits for the decision about its sink's batch
    PREPARE_COMMIT = "prepare_commit"  # decided; the coordinator sends markers
    PREPARE_ABORT = "prepare_abort"
    COMPLETE = "complete"  # all markers are written; the next transaction has no partition yet


class TransactionKey(msgspec.Struct, frozen=True, array_like=True, tag="transaction"):
    """Key of the record with the newest transaction of a transactional id."""

    transactional_id: str


class SinkKey(msgspec.Struct, frozen=True, array_like=True, tag="sink"):
    """Key of the record with the newest batch of a sink, which commits prepared transactions together."""

    key: str


class RequestKey(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """Key of the record of a keyed request: the digest of its idempotency key and of the key's scope."""

    digest: bytes


class Handle(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Identifies one transaction: producer id and producer epoch are its number."""

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id}@{self.producer_id}.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Handle | None:
        """Parse a handle in the form of ``str``; None for any other text."""
        found = _HANDLE.fullmatch(text)
        if found is None:
            return None
        handle = cls(found["name"], int(found["producer"]), int(found["epoch"]))
        return handle if handle.producer_id <= _PRODUCER_ID_MAX and handle.epoch <= EPOCH_MAX else None


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of an ended transaction, which has this producer id and epoch."""

    producer_id: int
    epoch: int
    is_committed: bool


class Transaction(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The newest transaction of an id: the open transaction or, if none is open, the next transaction."""

    producer_id: int
    epoch: int
    state: State
    partitions: tuple[Participant, ...] = ()  # sorted
    groups: tuple[str, ...] = ()  # groups with offsets in the transaction, sorted
    timeout_ms: int = 60_000  # while it is ongoing
    prepared_ms_max: int = 0  # while it is prepared
    began_ms: int = 0
    changed_ms: int = 0
    last: Outcome | None = None  # of the previous transaction
    request: bytes = b""  # while it is open: the digest of the keyed request that it carries out
    run_epoch: int = 0  # of the sink's run that has opened it; 0: none
    client: str = ""  # address of the creator; missing in rows of older versions
    incarnations: tuple[str, ...] = ()  # names of the newest openings, newest last


class Sink(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The newest batch of a sink, and the owner and run that may commit the next batch.

    A run registers before its first batch. Then ``sequence`` is one below the sequence of that batch, -1 at
    the lowest.
    """

    sequence: int
    handles: tuple[Handle, ...]  # sorted
    changed_ms: int = 0
    owner: str = ""  # empty: any driver may commit
    run: str = ""
    retired: tuple[str, ...] = ()  # earlier runs, newest last
    epoch: int = 0  # of ``run``
    owner_before: str = ""  # owner of the newest batch, until the present owner has committed a batch
    client: str = ""  # address of the creator; missing in rows of older versions


class KeyedRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request with an idempotency key.

    It runs until its transaction ends, then has an answer or is deleted.
    """

    fingerprint: bytes  # of its content
    transaction: Handle
    attempt: int  # distinguishes equal requests
    changed_ms: int
    answer: bytes | None = None  # opaque here
    client: str = ""  # address of the creator; missing in rows of older versions


Key = TransactionKey | SinkKey | RequestKey
Value = Transaction | Sink | KeyedRequest

KINDS: Final = KeyedRecords[Key, Value](
    {TransactionKey: Transaction, SinkKey: Sink, RequestKey: KeyedRequest}
)
