"""The errors of Raftlog, in one tree.

    RaftlogError
    ├── Rejected                definite: it did not happen and never will
    │   ├── InvalidRequest          a field is wrong; the message names it and the remedy
    │   │   ├── InvalidRecord           a record of the request is wrong
    │   │   ├── CorruptBatch            checksum, length or count of a batch is wrong
    │   │   ├── RecordTooLarge          above the topic's max.message.bytes
    │   │   ├── UnsupportedMediaType
    │   │   └── MalformedRequest        it is not HTTP; the connection ends
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── PartitionDecommissioned the partition takes no more records; send to another
    │   ├── BrokerNotFound
    │   ├── TopicExists
    │   ├── JoinRefused             a broker may not join: wrong token, or no proof of the cluster's secret
    │   ├── Conflict                the state of things forbids it now; the message says what to do first
    │   ├── GroupNotFound           no consumer group of that name
    │   ├── MemberNotFound          the group has no such member: join again
    │   ├── StaleGeneration         the group has had a rebalance since: join again
    │   ├── RebalanceInProgress     the group waits for its members to join again
    │   ├── QueueNotFound           the group does not work off this topic as a queue
    │   ├── LeaseLost               another worker has the job, or had it; the receipt counts no longer
    │   ├── PreconditionFailed      If-Match or If-Offset does not hold
    │   ├── OffsetOutOfRange        below the log start or above the high watermark
    │   ├── UndecodableBatch        a stored batch holds no records that can be read
    │   ├── ArchiveDamaged          a file of the archive is missing, or is not what was archived
    │   ├── ArchiveUnavailable      the archive does not answer; retry
    │   ├── OutOfOrderSequence      a batch of this producer is missing
    │   ├── ProducerFenced          a newer producer took over this id
    │   ├── TransactionNotFound     no such transactional id, or one that was given up long ago
    │   ├── TransactionAborted      its time ran out, or somebody aborted it; begin another
    │   ├── TransactionEnding       the transaction before is not complete yet; retry
    │   ├── OffsetsPending          an open transaction may still commit offsets of these partitions; retry
    │   ├── DelayedNotFound         no such delayed message is pending
    │   ├── DelayedAlreadyDelivered too late to change a delayed message
    │   ├── ScheduleNotFound        no schedule of that id
    │   ├── IdempotencyKeyReused    another request was sent with this key
    │   ├── IdempotencyInProgress   a request with this key is still running; retry
    │   ├── NotLeader               ask the leader named here
    │   │   └── ReplicaNotInSync        this replica is too old or lacks the offset; the leader can answer
    │   ├── NoLeader                an election is under way; retry
    │   ├── NotEnoughReplicas       fewer healthy voters than min.insync.replicas; retry
    │   ├── Overloaded              too much in flight; wait and retry
    │   ├── QuotaExceeded           the share of a client, group or topic is used up; wait and retry
    │   ├── Draining                the broker is stopping; ask another
    │   ├── StorageFull             the disk has no room; reads go on
    │   ├── UriTooLong              path and query are too long
    │   ├── HeadersTooLarge         a header is too long, or there are too many
    │   ├── MisdirectedRequest      the header Host names another server
    │   ├── OriginNotAllowed        a web page of a foreign origin writes
    │   ├── PathNotFound            no such path
    │   ├── MethodNotAllowed        the path has other methods
    │   ├── NotAcceptable           none of the media types asked for can be given
    │   ├── RequestTimeout          the body did not arrive in time; retry
    │   ├── RecordNotFound          the offset is in range and holds no user's record
    │   └── NotSent                 it never left this client
    ├── Unknown                 indefinite: it may or may not have happened
    │   ├── CommitUnknown           deadline or leadership lost while replicating
    │   ├── OutcomeForgotten        a transaction that ended too long ago to say how
    │   ├── LeadershipNotMoved      the time ran out before another replica led
    │   └── ConnectionLost          the answer never came
    └── InternalError           a mistake of a broker, and as indefinite; its log has more

Three more stop the replica or the process: ``InvariantViolated`` (our mistake), ``LogCorrupt`` (the
disk's) and ``MachineFailed`` (an unexpected error of a state machine).

``code`` is the name on the wire: the class's name in lower case, with ``_`` between its words. Neither
changes once released. Extra facts (the valid range, the expected sequence, the leader) are keyword
arguments kept in ``details`` and travel in the problem body; ``from_code`` builds the same error again on
the client's side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

Detail = str | int | bool | None | list[str]
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _code_of(kind: type[RaftlogError]) -> str:
    return _WORD.sub("_", kind.__name__).lower()


class RaftlogError(Exception):
    """Base of all errors a client can meet."""

    code: ClassVar[str]
    is_definite: ClassVar[bool] = False
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.code = _code_of(cls)

    def __init__(self, message: str = "", **details: Detail) -> None:
        super().__init__(message or type(self).code.replace("_", " "))
        self.details: dict[str, Detail] = details

    def with_details(self, **details: Detail) -> Self:
        """Return this error, with facts that only the caller of the failed work knows."""
        self.details.update(details)
        return self

    @property
    def problem(self) -> Mapping[str, Detail]:
        """The facts of this error as they stand in an RFC 9457 body, without title and status."""
        return {"code": self.code, "retryable": self.retryable, "detail": str(self), **self.details}


class Rejected(RaftlogError):
    """The operation did not happen and never will."""

    is_definite = True


class Unknown(RaftlogError):
    """The operation may have happened, or may still happen. When in doubt, this one."""

    is_definite = False
    retryable = True


class InvalidRequest(Rejected):
    """A field is wrong: the message names it and says what to send instead."""


class InvalidRecord(InvalidRequest):
    """A record is wrong. ``errors``: list of "JSON pointer: what is wrong"."""


class CorruptBatch(InvalidRequest):
    """The bytes are not a batch: wrong checksum, length, count, magic or trailing bytes."""


class RecordTooLarge(InvalidRequest):
    """The batch is above ``limit_bytes``, the topic's max.message.bytes, or the body above its limit."""


class UnsupportedMediaType(InvalidRequest):
    """``supported``: the media types that are understood here."""


class MalformedRequest(InvalidRequest):
    """The bytes are not HTTP/1.1, so nothing after them can be read either."""


class TopicNotFound(Rejected):
    """No topic of that name; raised by every lookup of a topic."""


class BrokerNotFound(Rejected):
    """No broker of that id has registered."""


class PartitionNotFound(Rejected):
    """The topic exists and has no such partition."""


class PartitionDecommissioned(Rejected):
    """The partition takes no more records: nothing of this request is stored, or will be.

    ``partitions``: as many take records, from number 0 on, as far as its leader knows.
    """


class TopicExists(Rejected):
    """A topic of that name is there already; nothing was changed."""


class JoinRefused(Rejected):
    """A broker may not join: its token is of another cluster or too old, or the secret is not proven."""


class Conflict(Rejected):
    """The request is right, but brokers or replicas are in no state for it; nothing was changed."""


class GroupNotFound(Rejected):
    """No consumer group of that name: it has neither members nor committed offsets."""


class MemberNotFound(Rejected):
    """The group has no such member: it never joined, has left, or its session has expired."""


class StaleGeneration(Rejected):
    """The group has another generation, ``current``: join again."""


class RebalanceInProgress(Rejected):
    """The group waits for its members to join again, or for its leader's plan."""


class QueueNotFound(Rejected):
    """The group does not work off this topic as a queue."""


class LeaseLost(Rejected):
    """The lease of a job is over: another worker may have the job. Nothing was changed."""


class PreconditionFailed(Rejected):
    """The resource has changed since it was read; read it again."""


class OffsetOutOfRange(Rejected):
    """``start`` and ``end`` are the valid range: log start offset and high watermark.

    ``archived_from`` is the next offset that can be read from the archive, if there is one below ``start``.
    """

    def nearest(self, offset: int) -> int:
        """The valid offset that is nearest to the refused one; ``offset`` where no range is known."""
        start, end = (int(str(self.details.get(name, offset))) for name in ("start", "end"))
        archived = self.details.get("archived_from")
        if isinstance(archived, int) and offset < archived < start:
            return archived
        return min(max(offset, start), end)


class UndecodableBatch(Rejected):
    """A stored batch whose checksum is right and whose inside is no records: a producer stored it so.

    ``topic``, ``partition`` and ``offset`` locate the batch; reading may continue at ``next_offset``.
    """


class ArchiveDamaged(Rejected):
    """A file with records below the log start is not what was archived. ``offset`` is where reading ended."""


class ArchiveUnavailable(Rejected):
    """The archive with the records below the log start does not answer. ``retry_after_ms`` says when to come
    back.
    """

    retryable = True


class OutOfOrderSequence(Rejected):
    """``expected_sequence`` is the sequence that should have come."""


class ProducerFenced(Rejected):
    """``current_epoch`` belongs to a newer incarnation of this producer.

    In a transaction: another process has opened the transactional id. Nothing of this transaction is visible;
    stop, and do not open the id again.
    """


class TransactionNotFound(Rejected):
    """No producer has this transactional id, or none has used it for days: open it, and repeat the work."""


class TransactionAborted(Rejected):
    """The transaction exceeded its time limit, or was aborted, and nothing of it is visible.

    Begin another one, and repeat its work.
    """


class TransactionEnding(Rejected):
    """The transaction before is decided, and its partitions do not show it yet."""

    retryable = True


class OffsetsPending(Rejected):
    """An open transaction has added offsets of these partitions: which ones count is decided by its end."""

    retryable = True


class IdempotencyKeyReused(Rejected):
    """Another request was sent with this ``Idempotency-Key``."""


class IdempotencyInProgress(Rejected):
    """An equal request with this ``Idempotency-Key`` is still running."""

    retryable = True


class DelayedNotFound(Rejected):
    """No such delayed message is pending."""


class DelayedAlreadyDelivered(Rejected):
    """The delayed message is delivered, or on its way: nothing can be changed any more."""


class ScheduleNotFound(Rejected):
    """No schedule has this id."""


class NotLeader(Rejected):
    """``leader`` is the broker id to ask, or None while none is known."""

    retryable = True


class ReplicaNotInSync(NotLeader):
    """The replica cannot serve the read within its bounds: ``max_staleness``, ``min_offset`` or its log.

    The leader can. ``replica`` is the broker that was asked, ``leader`` as in ``NotLeader``.
    """


class NoLeader(Rejected):
    """The partition is electing a leader."""

    retryable = True


class NotEnoughReplicas(Rejected):
    """Fewer healthy voters than min.insync.replicas; refused before anything was written."""

    retryable = True


class Overloaded(Rejected):
    """The broker or the partition has too much in flight. ``retry_after_ms`` says when to come back."""

    retryable = True


class QuotaExceeded(Rejected):
    """The share of a client, a group or a topic is used up. ``retry_after_ms`` says when to come back."""

    retryable = True


class Draining(Rejected):
    """The broker is stopping; another one serves."""

    retryable = True


class StorageFull(Rejected):
    """The disk has no room: produce is refused, reads go on, it recovers when space returns."""

    retryable = True


class UriTooLong(Rejected):
    """``limit_bytes``: maximum length of path and query together."""


class HeadersTooLarge(Rejected):
    """A header has more than ``limit_bytes``, or there are too many of them."""


class MisdirectedRequest(Rejected):
    """``Host`` is not a name of this broker; ``http.allowed_hosts`` may list it."""


class OriginNotAllowed(Rejected):
    """A web page of another origin writes; ``cors.allowed_origins`` may list it."""


class PathNotFound(Rejected):
    """There is no resource at this path; /docs lists all paths."""


class MethodNotAllowed(Rejected):
    """``allowed``: the methods of this path."""


class NotAcceptable(Rejected):
    """``supported``: the media types of this path."""


class RequestTimeout(Rejected):
    """The body did not arrive in time; nothing was done."""

    retryable = True


class RecordNotFound(Rejected):
    """The offset is in the log but has no user record (a control record, or removed by compaction)."""


class NotSent(Rejected):
    """The request never left this client: no broker could be reached in time, or the client was closed.

    Raised by the client only.
    """

    retryable = True


class CommitUnknown(Unknown):
    """The time ran out, or leadership was lost, while replicating.

    ``committed`` is True, False or None (unknown): with acks above the quorum a record may be
    committed while the wanted number of replicas was not reached.

    For a commit: no broker has said how the transaction has ended. Ask again with another commit, and do not
    repeat the work before.
    """


class OutcomeForgotten(Unknown):
    """Other transactions of this producer have ended since: whether this one was committed is forgotten.

    Asking again does not help: read what it wrote with ``isolation=committed``.
    """

    retryable = False


class LeadershipNotMoved(Unknown):
    """The time ran out before another replica led. The one that was asked may still win an election."""


class ConnectionLost(Unknown):
    """The answer never came. Raised by the client only."""


class InternalError(RaftlogError):
    """A broker made a mistake, which its log describes. The operation may have happened."""


class InvariantViolated(BaseException):
    """The process is wrong about its own state and must stop at once.

    A BaseException, so that ``except Exception`` cannot keep a broken replica alive.
    """


class LogCorrupt(Exception):
    """A stored log is damaged below its durable end: the replica stops voting and serving."""


class MachineFailed(Exception):
    """A state machine could not take in what is committed: its replica is opened again."""


RaftlogError.code = _code_of(RaftlogError)


def _kinds(base: type[RaftlogError]) -> Iterator[type[RaftlogError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


BY_CODE: Mapping[str, type[RaftlogError]] = {
    kind.code: kind for kind in _kinds(RaftlogError) if kind not in (Rejected, Unknown)
}
"""Every error that a broker sends or a client raises, by its name on the wire."""


def from_code(code: str, message: str, details: Mapping[str, Detail]) -> RaftlogError:
    """The error that a problem body describes; an unknown code gives a plain ``RaftlogError``."""
    return BY_CODE.get(code, RaftlogError)(message, **details)
