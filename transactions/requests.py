"""Requests to the coordinator of transactions, and its replies.

Brokers send requests and replies to each other as msgpack, so a new field needs a default. Every request may
be repeated.
"""

from __future__ import annotations

from typing import Final

import msgspec

from transactions.records import Handle, Participant, Transaction

ALL = 1 << 31  # default number of listed transactions, for older brokers
TransactionNumber = tuple[int, int]
"""Producer id and producer epoch, which identify a transaction."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The keyed request that a transaction carries out.

    ``attempt`` is a random number of each HTTP request.
    """

    digest: bytes
    fingerprint: bytes
    attempt: int
    client: str = ""  # address of the client


class Open(msgspec.Struct, tag="open", frozen=True, kw_only=True):
    """Open a transactional id for a new incarnation.

    This fences earlier incarnations and aborts their transaction. ``new_producer_id`` is used if the
    transactional id needs a producer id; without it the reply is ``NeedsProducerId``. With ``after`` the
    incarnation continues after this transaction, and is refused if it was fenced. With ``partitions`` or
    ``claim`` the transaction begins, and its time runs. With ``claim`` the reply is ``AnsweredBefore`` if an
    equal request was committed. With ``run_epoch`` the transaction belongs to a run of its sink, and is
    refused once a newer run has registered. A repeated request with the name of an ``incarnation`` fences
    nothing: the newest incarnation gets its reply again, an earlier incarnation is refused as fenced.
    """

    transactional_id: str
    timeout_ms: int
    new_producer_id: int = -1
    after: Handle | None = None
    partitions: tuple[Participant, ...] = ()
    claim: Claim | None = None
    run_epoch: int = 0
    client: str = ""  # address of the client; empty for ids of brokers
    incarnation: str = ""  # random; equal in each repetition of the request


class Join(msgspec.Struct, tag="join", frozen=True, kw_only=True):
    """Add partitions and groups to a transaction, before their first batches and offsets."""

    transaction: Handle
    partitions: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def transactional_id(self) -> str:
        """The transactional id of ``transaction``."""
        return self.transaction.transactional_id


class End(msgspec.Struct, tag="end", frozen=True, kw_only=True):
    """Commit or abort a transaction. The reply has the outcome, which an earlier end may have decided.

    The commit of a keyed request has its ``answer``, which is stored with the decision.
    """

    transaction: Handle
    is_commit: bool
    answer: bytes | None = None

    @property
    def transactional_id(self) -> str:
        """The transactional id of ``transaction``."""
        return self.transaction.transactional_id


class Prepare(msgspec.Struct, tag="prepare", frozen=True, kw_only=True):
    """Prepare a transaction: it accepts no further batches, and waits for the decision of its sink.

    After ``prepared_ms_max`` without a decision the transaction is aborted.
    """

    transaction: Handle
    prepared_ms_max: int

    @property
    def transactional_id(self) -> str:
        """The transactional id of ``transaction``."""
        return self.transaction.transactional_id


class BeginRun(msgspec.Struct, tag="begin-run", frozen=True, kw_only=True):
    """Register a run of a sink's owner before it writes the batch ``sequence``.

    The run fences earlier runs, and aborts their open transactions. ``is_takeover`` allows another owner, and
    a gap of sequences. The reply is ``RunBegun``.
    """

    key: str
    owner: str
    run: str
    sequence: int
    is_takeover: bool = False
    client: str = ""  # address of the client

    @property
    def transactional_id(self) -> str:
        """The sink's key, which alone selects the coordinator."""
        return self.key


class CommitBatch(msgspec.Struct, tag="commit-batch", frozen=True, kw_only=True):
    """Commit prepared transactions, all or none, and at most once for each sequence of the sink.

    With a ``run`` and its epoch, sequences must have no gap, and the sink's other open transactions are
    aborted.
    """

    key: str
    sequence: int
    handles: tuple[Handle, ...]
    run: str = ""
    run_epoch: int = 0
    client: str = ""  # address of the client

    @property
    def transactional_id(self) -> str:
        """The sink's key, which alone selects the coordinator."""
        return self.key


class AbortBatch(msgspec.Struct, tag="abort-batch", frozen=True, kw_only=True):
    """Abort prepared transactions, all or none; with ``run_epoch`` also all open transactions of this run."""

    key: str
    handles: tuple[Handle, ...]
    run_epoch: int = 0

    @property
    def transactional_id(self) -> str:
        """The sink's key, which alone selects the coordinator."""
        return self.key


class AbortOpen(msgspec.Struct, tag="abort-open", frozen=True, kw_only=True):
    """Abort the open or prepared transaction of an id, for an operator.

    ``transaction`` is the newest transaction when the operator asked; if given, a later transaction is not
    aborted.
    """

    transactional_id: str
    transaction: TransactionNumber | None = None  # older brokers do not send it


class ReadAnswer(msgspec.Struct, tag="read-answer", frozen=True, kw_only=True):
    """Read the answer of an equal committed request.

    The reply is ``AnsweredBefore``, or ``Done`` if no equal request was committed.
    """

    transactional_id: str  # selects the coordinator
    claim: Claim


class ReadTransaction(msgspec.Struct, tag="read", frozen=True, kw_only=True):
    """Describe the newest transaction of an id."""

    transactional_id: str


class ListTransactions(msgspec.Struct, tag="list", frozen=True, kw_only=True):
    """List the newest transactions of one coordinator, or only the open transactions.

    Lists up to ``count_max`` transactions after an id, sorted by id.
    """

    open_only: bool
    after: str = ""
    count_max: int = ALL


class ReadOutcomes(msgspec.Struct, tag="read-outcomes", frozen=True, kw_only=True):
    """Ask one coordinator for the outcomes of transactions that are open in a partition."""

    transactions: tuple[TransactionNumber, ...]


OfOneId = (
    Open
    | Join
    | End
    | Prepare
    | BeginRun
    | CommitBatch
    | AbortBatch
    | AbortOpen
    | ReadAnswer
    | ReadTransaction
)
Request = OfOneId | ListTransactions | ReadOutcomes
READS: Final = (ReadAnswer, ReadTransaction, ListTransactions, ReadOutcomes)
"""Classes of requests that write nothing."""


class Opened(msgspec.Struct, tag="opened", frozen=True, kw_only=True):
    """Producer id and epoch of the first transaction of a new incarnation."""

    producer_id: int
    epoch: int


class AnsweredBefore(msgspec.Struct, tag="answered-before", frozen=True, kw_only=True):
    """The answer of an equal committed request. No transaction was opened for this request."""

    answer: bytes


class NeedsProducerId(msgspec.Struct, tag="needs-producer-id", frozen=True):
    """The request was not carried out: repeat it with a new producer id."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """Reply to a request that was carried out and has no other result."""


class Ended(msgspec.Struct, tag="ended", frozen=True, kw_only=True):
    """The outcome of an ended transaction, which all its partitions show.

    ``next_epoch`` is the producer epoch of the next transaction; -1 if the producer must open the id again.
    """

    is_committed: bool
    next_epoch: int


class RunBegun(msgspec.Struct, tag="run-begun", frozen=True, kw_only=True):
    """The epoch of a run.

    If the run's batch is already committed, the run has nothing to write; its epoch may be 0.
    """

    epoch: int
    is_committed: bool


class Described(msgspec.Struct, tag="described", frozen=True, kw_only=True):
    """The newest transaction of an id."""

    transaction: Transaction


class Listed(msgspec.Struct, tag="listed", frozen=True, kw_only=True):
    """Transactions by transactional id."""

    transactions: dict[str, Transaction]
    has_more: bool = False  # whether there are later ones (``transactions.listing``)


class Known(msgspec.Struct, tag="known", frozen=True, kw_only=True):
    """The asked transactions that are open or committed here.

    Transactions in neither list are aborted, forgotten, or known to other coordinators.
    """

    open: tuple[TransactionNumber, ...]
    committed: tuple[TransactionNumber, ...]


Reply = Opened | AnsweredBefore | NeedsProducerId | Done | Ended | RunBegun | Described | Listed | Known
