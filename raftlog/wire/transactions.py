"""The bodies of requests about transactions and of their responses.

The id of a transaction, such as ``copy-1@4711.0``, is its transactional id, its producer id and its producer
epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from raftlog.wire import limits
from raftlog.wire.bodies import Answer, NewRecord, Request, matching
from raftlog.wire.groups import AddOffsets, Duration, TopicPartitions

HANDLES_MAX = 1_000  # of one batch
ID_CHARACTERS_MAX = 280

TransactionId = Annotated[str, msgspec.Meta(max_length=ID_CHARACTERS_MAX)]
TransactionalId = Annotated[str, matching("^[A-Za-z0-9._~-]{1,249}$")]
DriverName = Annotated[str, matching("^[A-Za-z0-9._-]{1,64}$")]
Sequence = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]
RunEpoch = Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)]

StateName = Literal[
    "empty", "ongoing", "prepared", "prepare_commit", "prepare_abort", "complete", "committed", "aborted"
]


class OpenTransaction(Request):
    """Body of ``POST /v1/transactions``. ``after`` is the id of this process's transaction before.

    ``run_epoch`` is that of the run of a sink whose task this is, from ``:begin-run``. ``incarnation`` is a
    random name, the same in each repetition: a repetition gets the same answer and fences nothing.
    """

    transactional_id: TransactionalId
    timeout: Duration = "60s"
    after: TransactionId | None = None
    run_epoch: RunEpoch | None = None
    incarnation: DriverName | None = None


class PrepareTransaction(Request):
    """Body of ``:prepare``: how long the transaction may wait for the decision about its batch."""

    timeout: Duration = "1h"


class BeginRun(Request):
    """Body of ``:begin-run``: a run of a sink's owner is about to write the batch ``sequence``.

    ``takeover`` allows another owner, and a gap.
    """

    key: TransactionalId
    owner: DriverName
    run: DriverName
    sequence: Sequence
    takeover: bool = False


class CommitBatch(Request):
    """Body of ``:commit-batch``. ``sequence`` rises with each batch of a ``key``.

    With a ``run`` and its ``run_epoch`` it rises by one, and ``transactions`` may be empty.
    """

    key: TransactionalId
    sequence: Sequence
    transactions: Annotated[list[TransactionId], msgspec.Meta(max_length=HANDLES_MAX)]
    run: DriverName | None = None
    run_epoch: RunEpoch | None = None


class AbortBatch(Request):
    """Body of ``:abort-batch``. With a ``run_epoch`` all that its run has open; there may be no others."""

    key: TransactionalId
    transactions: Annotated[list[TransactionId], msgspec.Meta(max_length=HANDLES_MAX)]
    run_epoch: RunEpoch | None = None


class TopicRecord(NewRecord, kw_only=True):
    """One record to be stored, with its topic."""

    topic: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": limits.NAME_PATTERN})]


class Execute(Request):
    """Body of ``:execute``: all of it is committed, or nothing. Records, offsets of a group, or both.

    Without a ``transactional_id`` the broker has one.
    """

    transactional_id: TransactionalId | None = None
    group_offsets: AddOffsets | None = None
    records: Annotated[
        list[TopicRecord], msgspec.Meta(extra_json_schema={"maxItems": limits.RECORDS_MAX})
    ] = msgspec.field(default_factory=list)


class TopicReceipt(Answer):
    """Position of one record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ExecutedBody(Answer):
    """The transaction, which is committed, and its records in the order of the request."""

    state: Literal["committed"]
    records: list[TopicReceipt]
    id: str
    producer_id: int
    producer_epoch: int


class OpenedBody(Answer):
    """A new transaction. Binary batches have ``producer_id`` and ``producer_epoch`` in their headers."""

    id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


class EndedBody(Answer):
    """The true outcome, and the id of the next transaction, or ``null`` where it must be opened."""

    id: str
    outcome: Literal["committed", "aborted"]
    next_id: str | None


class TransactionBody(Answer):
    """One transaction. Times are milliseconds since 1970, 0 if not yet. ``groups`` have offsets in it."""

    id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: StateName
    partitions: list[TopicPartitions]
    timeout_ms: int
    began: int
    changed: int
    groups: list[str] = msgspec.field(default_factory=list)


class OffsetsAddedBody(Answer):
    """The transaction and the group whose offsets it commits."""

    id: str
    group: str


class TransactionList(Answer):
    """A page of transactions, by transactional id."""

    items: list[TransactionBody]
    next_page_token: str | None = None


class RunBegunBody(Answer):
    """A run of a sink. If its batch is committed it has nothing to write, and perhaps no ``run_epoch``."""

    key: str
    run_epoch: int | None
    committed: bool


class BatchEndedBody(Answer):
    """All transactions of a batch, with one outcome."""

    key: str
    outcome: Literal["committed", "aborted"]
    transactions: list[str]
