"""The errors of Raftlog, in one tree.

    RaftlogError
    ├── Rejected                definite: the operation did not happen and never will
    │   ├── InvalidRequest          a field is wrong; the message names it and the remedy
    │   │   ├── InvalidRecord           a record of the request is wrong
    │   │   ├── CorruptBatch            checksum, length or count of a batch is wrong
    │   │   ├── RecordTooLarge          above the topic's max.message.bytes
    │   │   ├── UnsupportedMediaType
    │   │   └── MalformedRequest        the bytes are not HTTP; the broker closes the connection
    │   ├── TopicNotFound
    │   ├── PartitionNotFound
    │   ├── PartitionDecommissioned the partition takes no more records; send to another
    │   ├── BrokerNotFound
    │   ├── TopicExists
    │   ├── JoinRefused             a broker may not join: wrong token, or no proof of the cluster's secret
    │   ├── Conflict                the current state forbids the request; the message says what to do first
    │   ├── GroupNotFound           no consumer group of that name
    │   ├── MemberNotFound          the group has no such member: join again
    │   ├── StaleGeneration         the group has had a rebalance since: join again
    │   ├── RebalanceInProgress     the group waits for its members to join again
    │   ├── QueueNotFound           the group does not work off this topic as a queue
    │   ├── LeaseLost               the lease of the job is over; another worker may have the job
    │   ├── PreconditionFailed      If-Match or If-Offset does not hold
    │   ├── OffsetOutOfRange        below the log start or above the high watermark
    │   ├── UndecodableBatch        a stored batch holds no readable records
    │   ├── ArchiveDamaged          a file of the archive is missing, or differs from the archived file
    │   ├── ArchiveUnavailable      the archive does not answer; retry
    │   ├── OutOfOrderSequence      a batch of this producer is missing
    │   ├── ProducerFenced          a newer producer took over this id
    │   ├── TransactionNotFound     no producer has this transactional id, or none has used it for days
    │   ├── TransactionAborted      the transaction timed out or was aborted; begin another
    │   ├── TransactionEnding       the previous transaction is not complete yet; retry
    │   ├── OffsetsPending          an open transaction may still commit offsets of these partitions; retry
    │   ├── DelayedNotFound         no such delayed message is pending
    │   ├── DelayedAlreadyDelivered too late to change a delayed message
    │   ├── ScheduleNotFound        no schedule of that id
    │   ├── IdempotencyKeyReused    another request was sent with this key
    │   ├── IdempotencyInProgress   a request with this key is still running; retry
    │   ├── NotLeader               another broker leads; ask the broker in ``leader``
    │   │   └── ReplicaNotInSync        this replica is too old or lacks the offset; ask the leader
    │   ├── NoLeader                an election is under way; retry
    │   ├── NotEnoughReplicas       fewer healthy voters than min.insync.replicas; retry
    │   ├── Overloaded              too much in flight; wait and retry
    │   ├── QuotaExceeded           the share of a client, group or topic is used up; wait and retry
    │   ├── Draining                the broker is stopping; ask another broker
    │   ├── StorageFull             the disk has no room; reads continue
    │   ├── UriTooLong              path and query are too long
    │   ├── HeadersTooLarge         a header is too long, or there are too many
    │   ├── MisdirectedRequest      the header Host names another server
    │   ├── OriginNotAllowed        a web page of a foreign origin sent a request that writes
    │   ├── PathNotFound            no such path
    │   ├── MethodNotAllowed        the path has other methods
    │   ├── NotAcceptable           the response has none of the requested media types
    │   ├── RequestTimeout          the body did not arrive in time; retry
    │   ├── RecordNotFound          the offset is in range and holds no user's record
    │   └── NotSent                 the request never left this client
    ├── Unknown                 indefinite: the operation may or may not have happened
    │   ├── CommitUnknown           the time ran out, or leadership was lost, while replicating
    │   ├── OutcomeForgotten        the transaction ended too long ago; its outcome is no longer stored
    │   ├── LeadershipNotMoved      the time ran out before another replica led
    │   └── ConnectionLost          no response came
    └── InternalError           indefinite: a broker failed unexpectedly; its log has the details

Three more errors stop the replica or the process: ``InvariantViolated`` (a mistake of the program),
``LogCorrupt`` (damaged data on the disk) and ``MachineFailed`` (an unexpected error of a state machine).

``code`` is the name on the wire: the class's name in lower case, with ``_`` between its words. A code never
changes once it is released. Extra facts (the valid range, the expected sequence, the leader) are keyword
arguments, which ``details`` keeps and the problem body carries; ``from_code`` builds the same error on the
client's side.
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
    """Base of all errors that a client can get."""

    code: ClassVar[str]
    is_definite: ClassVar[bool] = False
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.code = _code_of(cls)

    def __init__(self, message: str = "", **details: Detail) -> None:
        super().__init__(message or type(self).code.replace("_", " "))
        self.details: dict[str, Detail] = details

    def with_details(self, **details: Detail) -> Self:
        """Add facts to this error that only the caller of the failed work knows, and return the error."""
        self.details.update(details)
        return self

    @property
    def problem(self) -> Mapping[str, Detail]:
        """The fields of this error in an RFC 9457 body, without title and status."""
        return {"code": self.code, "retryable": self.retryable, "detail": str(self), **self.details}


class Rejected(RaftlogError):
    """The operation did not happen and never will."""

    is_definite = True


class Unknown(RaftlogError):
    """The operation may have happened, or may still happen. Raised whenever the outcome is in doubt."""

    is_definite = False
    retryable = True


class InvalidRequest(Rejected):
    """A field is wrong: the message names it and says what to send instead."""


class InvalidRecord(InvalidRequest):
    """A record is wrong. ``errors`` lists the errors, each as the text "JSON pointer: error"."""


class CorruptBatch(InvalidRequest):
    """The bytes are not a batch: wrong checksum, length, count, magic or trailing bytes."""


class RecordTooLarge(InvalidRequest):
    """The batch exceeds ``limit_bytes``, the topic's max.message.bytes; or the body exceeds its own limit."""


class UnsupportedMediaType(InvalidRequest):
    """The media type of the body is not supported. ``supported``: the media types that the path accepts."""


class MalformedRequest(InvalidRequest):
    """The bytes are not HTTP/1.1, so the bytes after them cannot be read either."""


class TopicNotFound(Rejected):
    """No topic has this name. Raised by every lookup of a topic."""


class BrokerNotFound(Rejected):
    """No broker with this id has registered."""


class PartitionNotFound(Rejected):
    """The topic exists but has no partition of this number."""


class PartitionDecommissioned(Rejected):
    """The partition takes no more records: no record of this request was stored or will be stored.

    ``partitions``: the number of partitions that still take records, as far as the leader knows. They have
    the lowest numbers, from 0 on.
    """


class TopicExists(Rejected):
    """A topic with this name exists already; nothing was changed."""


class JoinRefused(Rejected):
    """A broker may not join: its token is too old or of another cluster, or it did not prove the secret."""


class Conflict(Rejected):
    """The request is valid, but the state of brokers or replicas forbids it; nothing was changed."""


class GroupNotFound(Rejected):
    """No consumer group has this name: neither members nor committed offsets exist."""


class MemberNotFound(Rejected):
    """The group has no such member: the member never joined, has left, or its session has expired."""


class StaleGeneration(Rejected):
    """The member's generation is over: the group's generation is now ``current``. Join again."""


class RebalanceInProgress(Rejected):
    """The group waits for its members to join again, or for its leader's plan."""


class QueueNotFound(Rejected):
    """The group does not use this topic as a queue."""


class LeaseLost(Rejected):
    """The lease of a job is over: another worker may have the job. Nothing was changed."""


class PreconditionFailed(Rejected):
    """The resource has changed since the client read it; read it again."""


class OffsetOutOfRange(Rejected):
    """The offset is out of the valid range: ``start`` (log start offset) to ``end`` (high watermark).

    ``archived_from`` is the next offset that can be read from the archive, if there is such an offset below
    ``start``.
    """

    def nearest(self, offset: int) -> int:
        """The offset in the valid range that is nearest to ``offset``; ``offset`` itself without a known
        range.
        """
        start, end = (int(str(self.details.get(name, offset))) for name in ("start", "end"))
        archived = self.details.get("archived_from")
        if isinstance(archived, int) and offset < archived < start:
            return archived
        return min(max(offset, start), end)


class UndecodableBatch(Rejected):
    """A stored batch has the right checksum but no readable records: its producer sent it in this state.

    ``topic``, ``partition`` and ``offset`` locate the batch; reading may continue at ``next_offset``.
    """


class ArchiveDamaged(Rejected):
    """An archive file with records below the log start is damaged.

    ``offset``: the offset where reading ended.
    """


class ArchiveUnavailable(Rejected):
    """The archive with the records below the log start does not answer.

    ``retry_after_ms``: the time to wait before the next attempt.
    """

    retryable = True


class OutOfOrderSequence(Rejected):
    """A batch of this producer is missing. ``expected_sequence``: the sequence of the missing batch."""


class ProducerFenced(Rejected):
    """A newer incarnation of this producer exists; its epoch is ``current_epoch``.

    In a transaction: another process has opened the transactional id. No record of this transaction is
    visible.
    Stop, and do not open the id again.
    """


class TransactionNotFound(Rejected):
    """No producer has this transactional id, or none has used it for days: open it, and repeat the work."""


class TransactionAborted(Rejected):
    """The transaction exceeded its time limit or was aborted; no record of it is visible.

    Begin another transaction and repeat the work.
    """


class TransactionEnding(Rejected):
    """The previous transaction is decided, but not all of its partitions show the outcome yet."""

    retryable = True


class OffsetsPending(Rejected):
    """An open transaction has added offsets of these partitions; its outcome decides which offsets count."""

    retryable = True


class IdempotencyKeyReused(Rejected):
    """Another request was sent with this ``Idempotency-Key``."""


class IdempotencyInProgress(Rejected):
    """An equal request with this ``Idempotency-Key`` is still running."""

    retryable = True


class DelayedNotFound(Rejected):
    """No delayed message with this id is pending."""


class DelayedAlreadyDelivered(Rejected):
    """The delayed message is delivered or being delivered, and can no longer be changed."""


class ScheduleNotFound(Rejected):
    """No schedule has this id."""


class NotLeader(Rejected):
    """The broker does not lead the partition. ``leader``: id of the broker to ask, None while unknown."""

    retryable = True


class ReplicaNotInSync(NotLeader):
    """The replica lacks records of the read, or is outside ``max_staleness`` or ``min_offset``.

    The leader can serve the read. ``replica`` is the broker that was asked; ``leader`` has the meaning that
    it has in ``NotLeader``.
    """


class NoLeader(Rejected):
    """The partition has no leader at the moment: an election is in progress."""

    retryable = True


class NotEnoughReplicas(Rejected):
    """Fewer healthy voters than min.insync.replicas; the leader refused the request before it
    wrote anything.
    """

    retryable = True


class Overloaded(Rejected):
    """The broker or partition has too many requests or bytes in progress.

    ``retry_after_ms``: the time to wait.
    """

    retryable = True


class QuotaExceeded(Rejected):
    """A client, a group or a topic has used up its share of requests or bytes.

    ``retry_after_ms``: the time to wait.
    """

    retryable = True


class Draining(Rejected):
    """The broker is stopping; ask another broker."""

    retryable = True


class StorageFull(Rejected):
    """The disk has no room: the broker refuses new records and serves reads until there is room again."""

    retryable = True


class UriTooLong(Rejected):
    """The path and query are too long. ``limit_bytes``: their maximum length together."""


class HeadersTooLarge(Rejected):
    """A header has more than ``limit_bytes``, or the request has too many headers."""


class MisdirectedRequest(Rejected):
    """``Host`` is not a name of this broker; ``http.allowed_hosts`` can list more names."""


class OriginNotAllowed(Rejected):
    """A web page of another origin sent a request that writes; see ``cors.allowed_origins``."""


class PathNotFound(Rejected):
    """No resource has this path; /docs lists all paths."""


class MethodNotAllowed(Rejected):
    """The path does not support this method. ``allowed``: the methods of this path."""


class NotAcceptable(Rejected):
    """The path has none of the requested media types. ``supported``: the media types of this path."""


class RequestTimeout(Rejected):
    """The body did not arrive in time; nothing was done."""

    retryable = True


class RecordNotFound(Rejected):
    """The offset is in the log but has no user record (a control record, or removed by compaction)."""


class NotSent(Rejected):
    """The request never left this client: no broker was reachable in time, or the client was closed.

    Raised by the client only.
    """

    retryable = True


class CommitUnknown(Unknown):
    """The time ran out, or leadership was lost, while the leader replicated the request.

    ``committed`` is True, False or None (unknown): with acks above the quorum a record may be committed
    although too few replicas hold it.

    For the commit of a transaction: no broker has said how the transaction has ended. Commit again to learn
    the outcome, and do not repeat the work of the transaction.
    """


class OutcomeForgotten(Unknown):
    """The outcome of a transaction is no longer stored: later transactions of this producer have ended.

    A repeated request gets this error again: read the records with ``isolation=committed`` instead.
    """

    retryable = False


class LeadershipNotMoved(Unknown):
    """The time ran out before another replica led. The target may still win an election."""


class ConnectionLost(Unknown):
    """The connection broke before a response came. Raised by the client only."""


class InternalError(RaftlogError):
    """A broker failed unexpectedly; its log has the details. The operation may have happened."""


class InvariantViolated(BaseException):
    """The state of this process is wrong: the process must stop at once.

    A BaseException, so that ``except Exception`` cannot keep a broken replica alive.
    """


class LogCorrupt(Exception):
    """A stored log is damaged below its durable end: the replica stops voting and serving."""


class MachineFailed(Exception):
    """A state machine could not apply a committed entry: its replica is opened again."""


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
