"""The records of the topic ``__transactions``: the contract with its readers.

Their encoding is that of all internal topics (``raftlog.hosting.keyed_records``).
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
EPOCH_LAST: Final = EPOCH_MAX - 1  # of a transaction: the epoch above fences it

RESERVED: Final = "__"
"""Transactional ids that begin with it belong to brokers (``one_shot``)."""

TRANSACTIONAL_ID: Final = rf"[A-Za-z0-9._~-]{{1,{NAME_CHARACTERS_MAX}}}"
_HANDLE: Final = re.compile(
    rf"(?P<name>{TRANSACTIONAL_ID})@(?P<producer>[0-9]{{1,19}})\.(?P<epoch>[0-9]{{1,5}})"
)

_PRODUCER_ID_MAX: Final = (1 << 63) - 1

Participant = tuple[str, int]
"""A partition that takes part: topic and number."""


class State(enum.StrEnum):
    """The state of a transactional id."""

    EMPTY = "empty"  # its next transaction has no partition yet, and it had none before
    ONGOING = "ongoing"
    PREPARED = "prepared"  # it takes no more batches, and waits for the decision about its batch
    PREPARE_COMMIT = "prepare_commit"  # decided; markers are on their way
    PREPARE_ABORT = "prepare_abort"
    COMPLETE = "complete"  # all markers are written, and the next transaction has no partition yet


class TransactionKey(msgspec.Struct, frozen=True, array_like=True, tag="transaction"):
    """The transactions of one transactional id."""

    transactional_id: str


class SinkKey(msgspec.Struct, frozen=True, array_like=True, tag="sink"):
    """The batches of one sink, which commits prepared transactions together."""

    key: str


class RequestKey(msgspec.Struct, frozen=True, array_like=True, tag="request"):
    """A request that has an idempotency key: a digest of the key and of what it is unique in."""

    digest: bytes


class Handle(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One transaction: its number is the pair of producer id and producer epoch."""

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id}@{self.producer_id}.{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Handle | None:
        """Parse a handle that ``str`` has written; None for every other text."""
        found = _HANDLE.fullmatch(text)
        if found is None:
            return None
        handle = cls(found["name"], int(found["producer"]), int(found["epoch"]))
        return handle if handle.producer_id <= _PRODUCER_ID_MAX and handle.epoch <= EPOCH_MAX else None


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of a transaction that has ended."""

    producer_id: int
    epoch: int
    is_committed: bool


class Transaction(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The newest transaction of an id: the one that is open, or the next one that will be."""

    producer_id: int
    epoch: int
    state: State
    partitions: tuple[Participant, ...] = ()  # in order
    groups: tuple[str, ...] = ()  # with offsets in it, in order
    timeout_ms: int = 60_000  # while it is ongoing
    prepared_ms_max: int = 0  # while it is prepared
    began_ms: int = 0
    changed_ms: int = 0
    last: Outcome | None = None  # of the transaction before
    request: bytes = b""  # while it is open: the digest of the keyed request that it carries out
    run_epoch: int = 0  # of the sink's run that has opened it; 0: none
    client: str = ""  # the address of its creator; older versions did not write it
    incarnations: tuple[str, ...] = ()  # names of the openings that had one, the newest last


class Sink(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The newest batch of a sink, and which run of which owner may commit the next one.

    A run registers before its first batch: ``sequence`` is then below it, -1 at the lowest.
    """

    sequence: int
    handles: tuple[Handle, ...]  # in order
    changed_ms: int = 0
    owner: str = ""  # with "" anybody may commit
    run: str = ""
    retired: tuple[str, ...] = ()  # the runs before, the newest last
    epoch: int = 0  # of ``run``
    owner_before: str = ""  # of the newest batch, until the owner has committed one
    client: str = ""  # the address of its creator; older versions did not write it


class KeyedRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A request with an idempotency key: running until its transaction ends, then answered or deleted."""

    fingerprint: bytes  # of its content
    transaction: Handle
    attempt: int  # which of several equal requests it is
    changed_ms: int
    answer: bytes | None = None  # opaque here
    client: str = ""  # the address of its creator; older versions did not write it


Key = TransactionKey | SinkKey | RequestKey
Value = Transaction | Sink | KeyedRequest

KINDS: Final = KeyedRecords[Key, Value](
    {TransactionKey: Transaction, SinkKey: Sink, RequestKey: KeyedRequest}
)
