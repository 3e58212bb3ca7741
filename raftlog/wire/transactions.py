"""The operations on transactions, with their bodies.

The id of a transaction, such as ``copy-1@4711.0``, is its transactional id, its producer id and its producer
epoch.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from raftlog import errors
from raftlog.wire import headers, limits, media_types
from raftlog.wire.bodies import Answer, NewRecord, Request, matching
from raftlog.wire.groups import AddOffsets, Duration, TopicPartitions
from raftlog.wire.operation import STORED, Leader, Nothing, Operation, Success

HANDLES_MAX = 1_000  # per batch
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
    """Body of ``POST /v1/transactions``. ``after`` is the id of the previous transaction of this process.

    ``run_epoch`` is the epoch of the sink run to which this task belongs, from the response to
    ``:begin-run``. ``incarnation`` is a random name, which a repeated request has, too: the repetition gets
    an equal response and fences no producer.
    """

    transactional_id: TransactionalId
    timeout: Duration = "60s"
    after: TransactionId | None = None
    run_epoch: RunEpoch | None = None
    incarnation: DriverName | None = None


class PrepareTransaction(Request):
    """Body of ``:prepare``.

    ``timeout`` is the time that the prepared transaction may wait for the commit or abort of its batch.
    """

    timeout: Duration = "1h"


class BeginRun(Request):
    """Body of ``:begin-run``: the ``run`` of ``owner`` is about to write the batch ``sequence`` to a sink.

    ``takeover`` allows another owner, and a gap in the sequence.
    """

    sink_key: TransactionalId
    owner: DriverName
    run: DriverName
    sequence: Sequence
    takeover: bool = False


class CommitBatch(Request):
    """Body of ``:commit-batch``. ``sequence`` rises with each batch of a ``sink_key``.

    With a ``run`` and its ``run_epoch`` the sequence must rise by one, and ``transactions`` may be empty.
    """

    sink_key: TransactionalId
    sequence: Sequence
    transactions: Annotated[list[TransactionId], msgspec.Meta(max_length=HANDLES_MAX)]
    run: DriverName | None = None
    run_epoch: RunEpoch | None = None


class AbortBatch(Request):
    """Body of ``:abort-batch``.

    With a ``run_epoch`` all open transactions of the run with this epoch are aborted, too.
    """

    sink_key: TransactionalId
    transactions: Annotated[list[TransactionId], msgspec.Meta(max_length=HANDLES_MAX)]
    run_epoch: RunEpoch | None = None


class TopicRecord(NewRecord, kw_only=True):
    """One record to be stored, and its topic."""

    topic: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": limits.NAME_PATTERN})]


class Execute(Request):
    """Body of ``:execute``: records, offsets of a group, or both. Either all of these are committed, or none.

    Without a ``transactional_id`` the broker uses one of its own.
    """

    transactional_id: TransactionalId | None = None
    group_offsets: AddOffsets | None = None
    records: Annotated[
        list[TopicRecord], msgspec.Meta(extra_json_schema={"maxItems": limits.RECORDS_MAX})
    ] = msgspec.field(default_factory=list)


class TopicReceipt(Answer):
    """The position of one stored record."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ExecutedTransaction(Answer):
    """The committed transaction, and its records in the order of the request."""

    state: Literal["committed"]
    records: list[TopicReceipt]
    id: str
    producer_id: int
    producer_epoch: int


class OpenedTransaction(Answer):
    """A new transaction. Put ``producer_id`` and ``producer_epoch`` into the headers of binary batches."""

    id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int


class EndedTransaction(Answer):
    """The true outcome, and the id of the next transaction; ``null`` if that one must be opened."""

    id: str
    outcome: Literal["committed", "aborted"]
    next_id: str | None


class TransactionDescription(Answer):
    """One transaction.

    Times are milliseconds since 1970, 0 if unset. ``groups`` are the groups whose offsets the transaction
    commits.
    """

    id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: StateName
    partitions: list[TopicPartitions]
    timeout_ms: int
    began_at: int
    changed_at: int
    groups: list[str] = msgspec.field(default_factory=list)


class OffsetsAdded(Answer):
    """The transaction and the group whose offsets it commits."""

    id: str
    group: str


class TransactionList(Answer):
    """A page of transactions, by transactional id."""

    items: list[TransactionDescription]
    next_page_token: str | None = None


class BegunRun(Answer):
    """A run of a sink.

    If ``committed`` is true, the batch of the run is committed already: the run has nothing to write, and may
    have no ``run_epoch``.
    """

    sink_key: str
    run_epoch: int | None
    committed: bool


class EndedBatch(Answer):
    """The outcome of a batch, which is the outcome of all its transactions."""

    sink_key: str
    outcome: Literal["committed", "aborted"]
    transactions: list[str]


_OF_TRANSACTION = (
    errors.TransactionNotFound,
    errors.Overloaded,
    errors.ProducerFenced,
    errors.TransactionAborted,
    errors.TransactionEnding,
    errors.OutcomeForgotten,
    errors.Conflict,
)
_OF_MEMBER = (errors.GroupNotFound, errors.MemberNotFound, errors.StaleGeneration, errors.RebalanceInProgress)

EXECUTE = Operation(
    name="transactions.execute",
    request="POST /v1/transactions:execute",
    summary="Execute a transaction in one request",
    text=(
        "Stores records of several topics and commits offsets of a group, all or nothing. A "
        "`transactional_id` is opened first, which fences its earlier incarnations. After an error nothing "
        "is visible, except after a 504 with `committed` null: `GET /v1/transactions/{transaction}` has the "
        "outcome, and a repetition with an `Idempotency-Key` is stored once."
    ),
    leader=Leader.TRANSACTION,
    body=Execute,
    answer=ExecutedTransaction,
    success={200: "the transaction is committed"},
    headers=(headers.IDEMPOTENCY_REPLAYED,),
    errors=(
        *_OF_MEMBER,
        *STORED,
        errors.InvalidRecord,
        errors.TopicNotFound,
        errors.PartitionNotFound,
        errors.QuotaExceeded,
        errors.Draining,
        errors.Conflict,
        errors.OffsetOutOfRange,
        errors.OffsetsPending,
        errors.ProducerFenced,
        errors.TransactionAborted,
        errors.TransactionEnding,
        errors.IdempotencyKeyReused,
        errors.IdempotencyInProgress,
    ),
)

ADD_OFFSETS = Operation(
    name="transactions.add_offsets",
    request="POST /v1/transactions/{transaction}:add-offsets",
    summary="Add offsets of a group to a transaction",
    text=(
        "The commit of the transaction commits them; its abort drops them. May be repeated. A consumer that "
        "takes over one of these partitions waits for the end of the transaction."
    ),
    leader=Leader.TRANSACTION,
    body=AddOffsets,
    answer=OffsetsAdded,
    success={200: "the offsets are added"},
    errors=(
        *_OF_TRANSACTION,
        *_OF_MEMBER,
        errors.TopicNotFound,
        errors.PartitionNotFound,
        errors.OffsetOutOfRange,
        errors.OffsetsPending,
    ),
)

OPEN = Operation(
    name="transactions.open",
    request="POST /v1/transactions",
    summary="Open a transaction",
    text=(
        "A new incarnation of a transactional id: it fences the earlier ones and aborts their open "
        "transactions. With `after` it continues after its own previous transaction."
    ),
    leader=Leader.TRANSACTION,
    body=OpenTransaction,
    answer=OpenedTransaction,
    success={201: "the transaction"},
    headers=("Location",),
    errors=_OF_TRANSACTION,
)

LIST = Operation(
    name="transactions.list",
    request="GET /v1/transactions",
    summary="List transactions",
    text="By transactional id, each with its newest transaction.",
    leader=Leader.TRANSACTION,
    answer=TransactionList,
    success={200: "a page"},
)

DESCRIBE = Operation(
    name="transactions.describe",
    request="GET /v1/transactions/{transaction}",
    summary="Describe a transaction",
    text="With a transactional id alone: its newest transaction.",
    leader=Leader.TRANSACTION,
    answer=TransactionDescription,
    success={200: "the transaction"},
    errors=(*_OF_TRANSACTION, errors.CommitUnknown),
)

COMMIT = Operation(
    name="transactions.commit",
    request="POST /v1/transactions/{transaction}:commit",
    summary="Commit a transaction",
    text="May be repeated: the response has the true outcome.",
    leader=Leader.TRANSACTION,
    answer=EndedTransaction,
    success={200: "the outcome"},
    errors=_OF_TRANSACTION,
)

ABORT = Operation(
    name="transactions.abort",
    request="POST /v1/transactions/{transaction}:abort",
    summary="Abort a transaction",
    text=(
        "May be repeated: the response has the true outcome. With a transactional id alone, for operators: "
        "aborts its open transaction."
    ),
    leader=Leader.TRANSACTION,
    answer=Nothing,
    success={200: Success("the outcome", {media_types.JSON: (EndedTransaction, TransactionDescription)})},
    errors=_OF_TRANSACTION,
)

PREPARE = Operation(
    name="transactions.prepare",
    request="POST /v1/transactions/{transaction}:prepare",
    summary="Prepare a transaction",
    text=(
        "The transaction takes no more records, stays invisible, and waits for `:commit-batch`. Its "
        "transactional id is the key of its sink, `~`, and a name."
    ),
    leader=Leader.TRANSACTION,
    body=PrepareTransaction,
    body_required=False,
    answer=TransactionDescription,
    success={200: "the transaction"},
    errors=_OF_TRANSACTION,
)

BEGIN_RUN = Operation(
    name="transactions.begin_run",
    request="POST /v1/transactions:begin-run",
    summary="Register a run of a sink",
    text=(
        "A new run fences earlier runs, and aborts their open transactions. A run whose batch is committed "
        "changes nothing. May be repeated."
    ),
    leader=Leader.TRANSACTION,
    body=BeginRun,
    answer=BegunRun,
    success={200: "the run"},
    errors=_OF_TRANSACTION,
)

COMMIT_BATCH = Operation(
    name="transactions.commit_batch",
    request="POST /v1/transactions:commit-batch",
    summary="Commit prepared transactions together",
    text=(
        "All or none, and once for each `sequence` of a `key`: a repetition gets the same response, a lower "
        "sequence is refused. With a `run`, a gap and an earlier run are refused, too, and all other "
        "transactions of the sink are aborted."
    ),
    leader=Leader.TRANSACTION,
    body=CommitBatch,
    answer=EndedBatch,
    success={200: "the transactions are committed"},
    errors=_OF_TRANSACTION,
)

ABORT_BATCH = Operation(
    name="transactions.abort_batch",
    request="POST /v1/transactions:abort-batch",
    summary="Abort prepared transactions together",
    text=("All or none: refused if one is committed. With a `run_epoch`: all open transactions of this run."),
    leader=Leader.TRANSACTION,
    body=AbortBatch,
    answer=EndedBatch,
    success={200: "the transactions are aborted"},
    errors=_OF_TRANSACTION,
)
