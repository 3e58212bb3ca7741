"""Requests to the coordinator of transactions and its replies. Nothing is decided here.

They travel between brokers as msgpack; a field that is added has a default. Every request may be repeated.
"""

from __future__ import annotations

from typing import Final

import msgspec

from transactions.records import Handle, Participant, Transaction

ALL = 1 << 31  # transactions: older brokers ask for all
TransactionNumber = tuple[int, int]
"""Producer id and epoch."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The keyed request that a transaction is opened for. ``attempt`` is drawn for each HTTP request."""

    digest: bytes
    fingerprint: bytes
    attempt: int
    client: str = ""  # its address


class Open(msgspec.Struct, tag="open", frozen=True, kw_only=True):
    """A new incarnation of a producer: it fences the earlier ones and aborts their transaction.

    ``new_producer_id`` is taken where the transactional id needs one; without it the reply is
    ``NeedsProducerId``. With ``after`` it goes on behind this transaction, and is refused to an incarnation
    that is fenced by now. With ``partitions`` or ``claim`` the transaction has begun, and its time runs; with
    ``claim`` the reply is ``AnsweredBefore`` where an equal request is committed. With ``run_epoch`` it
    belongs to a run of its sink, and is refused once a newer one has registered. A repetition with the name
    of an ``incarnation`` fences nothing: the newest one gets the reply again, an earlier one is fenced.
    """

    transactional_id: str
    timeout_ms: int
    new_producer_id: int = -1
    after: Handle | None = None
    partitions: tuple[Participant, ...] = ()
    claim: Claim | None = None
    run_epoch: int = 0
    client: str = ""  # its address; none for ids of brokers
    incarnation: str = ""  # random, and the same in each repetition


class Join(msgspec.Struct, tag="join", frozen=True, kw_only=True):
    """A partition is about to take the first batch of a transaction, or a group its first offsets."""

    transaction: Handle
    partitions: tuple[Participant, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def transactional_id(self) -> str:
        """The transactional id of ``transaction``."""
        return self.transaction.transactional_id


class End(msgspec.Struct, tag="end", frozen=True, kw_only=True):
    """Commit or abort. The reply has the true outcome, which an earlier end may have decided.

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
    """Take no more batches, and wait for the decision about the batch of its sink, for so long at most."""

    transaction: Handle
    prepared_ms_max: int

    @property
    def transactional_id(self) -> str:
        """The transactional id of ``transaction``."""
        return self.transaction.transactional_id


class BeginRun(msgspec.Struct, tag="begin-run", frozen=True, kw_only=True):
    """Register a run of a sink's owner, which is about to write the batch ``sequence``.

    It fences the runs before, and aborts what they have open. ``is_takeover`` allows another owner, and a
    gap. The reply is ``RunBegun``.
    """

    key: str
    owner: str
    run: str
    sequence: int
    is_takeover: bool = False
    client: str = ""  # its address

    @property
    def transactional_id(self) -> str:
        """The key, which alone selects the coordinator."""
        return self.key


class CommitBatch(msgspec.Struct, tag="commit-batch", frozen=True, kw_only=True):
    """Commit prepared transactions, all or none, and at most once for each sequence of the sink.

    With a ``run`` and its epoch the sequences have no gap, and all else that the sink has open is aborted.
    """

    key: str
    sequence: int
    handles: tuple[Handle, ...]
    run: str = ""
    run_epoch: int = 0
    client: str = ""  # its address

    @property
    def transactional_id(self) -> str:
        """The key, which alone selects the coordinator."""
        return self.key


class AbortBatch(msgspec.Struct, tag="abort-batch", frozen=True, kw_only=True):
    """Abort prepared transactions, all or none; with ``run_epoch`` all that this run has open, too."""

    key: str
    handles: tuple[Handle, ...]
    run_epoch: int = 0

    @property
    def transactional_id(self) -> str:
        """The key, which alone selects the coordinator."""
        return self.key


class AbortOpen(msgspec.Struct, tag="abort-open", frozen=True, kw_only=True):
    """An operator's abort of whatever is open, prepared transactions too.

    ``transaction`` is the one that was the newest when the operator asked: a later one is left alone.
    """

    transactional_id: str
    transaction: TransactionNumber | None = None  # older brokers do not send it


class ReadAnswer(msgspec.Struct, tag="read-answer", frozen=True, kw_only=True):
    """``AnsweredBefore`` where an equal request is committed, else ``Done``; refused as ``Open`` is."""

    transactional_id: str  # selects the coordinator
    claim: Claim


class ReadTransaction(msgspec.Struct, tag="read", frozen=True, kw_only=True):
    """Describe the newest transaction of an id."""

    transactional_id: str


class ListTransactions(msgspec.Struct, tag="list", frozen=True, kw_only=True):
    """List the newest transactions of one coordinator, or only transactions that hold back readers.

    Up to ``count_max`` behind an id, in the order of the ids.
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
    """The first transaction of a new incarnation."""

    producer_id: int
    epoch: int


class AnsweredBefore(msgspec.Struct, tag="answered-before", frozen=True, kw_only=True):
    """An equal request is committed, and this was its answer. Nothing was opened."""

    answer: bytes


class NeedsProducerId(msgspec.Struct, tag="needs-producer-id", frozen=True):
    """The request was not carried out: repeat it with a new producer id."""


class Done(msgspec.Struct, tag="done", frozen=True):
    """The request is done."""


class Ended(msgspec.Struct, tag="ended", frozen=True, kw_only=True):
    """The transaction has ended, and all its partitions show it.

    ``next_epoch`` is that of the next transaction of the same producer id, or -1 where it must open again.
    """

    is_committed: bool
    next_epoch: int


class RunBegun(msgspec.Struct, tag="run-begun", frozen=True, kw_only=True):
    """The epoch of a run. If its batch is committed it has nothing to write, and may have no epoch: 0."""

    epoch: int
    is_committed: bool


class Described(msgspec.Struct, tag="described", frozen=True, kw_only=True):
    """The newest transaction of an id."""

    transaction: Transaction


class Listed(msgspec.Struct, tag="listed", frozen=True, kw_only=True):
    """By transactional id."""

    transactions: dict[str, Transaction]
    has_more: bool = False  # behind the last one: see ``transactions.listing``


class Known(msgspec.Struct, tag="known", frozen=True, kw_only=True):
    """Open and committed transactions; all other transactions are aborted, forgotten, or elsewhere."""

    open: tuple[TransactionNumber, ...]
    committed: tuple[TransactionNumber, ...]


Reply = Opened | AnsweredBefore | NeedsProducerId | Done | Ended | RunBegun | Described | Listed | Known
