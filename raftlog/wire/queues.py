"""The operations on queues, with their bodies."""

from __future__ import annotations

from typing import Annotated

import msgspec

from raftlog import errors
from raftlog.wire.bodies import Answer, Message, Request, Tags
from raftlog.wire.groups import Duration
from raftlog.wire.operation import STORED, Leader, Nothing, Operation

JOBS_MAX = 100  # per receive
RECEIPTS_MAX = 500  # per request
LEASE_MS = (1_000, 43_200_000)  # the shortest and the longest lease: 12 hours
PAUSE_MS_MAX = 43_200_000  # the longest delay before the next delivery
DELIVERIES_MAX = 1_000
REASON_CHARACTERS_MAX = 1_000
RECEIPT_CHARACTERS_MAX = 64

ReceiptText = Annotated[str, msgspec.Meta(min_length=1, max_length=RECEIPT_CHARACTERS_MAX)]
Receipts = Annotated[list[ReceiptText], msgspec.Meta(min_length=1, max_length=RECEIPTS_MAX)]
Reason = Annotated[str, msgspec.Meta(max_length=REASON_CHARACTERS_MAX)]


class ReceiveJobs(Request):
    """Body of ``:receive``. ``lease`` is the duration of the leases of the received jobs.

    A job that was delivered ``max_deliveries`` times goes to the dead-letter topic when its lease ends, or
    when its worker gives it back. With ``ordered_by_key`` one job of a key is leased at a time, in order. The
    jobs are the records with any of ``tags``, all of ``tags_all`` and none of ``tags_none``; an empty list
    sets no condition. All workers of the queue must send equal order and tags.
    """

    limit: Annotated[int, msgspec.Meta(ge=1, le=JOBS_MAX)] = 10
    wait: Duration = "0s"
    lease: Duration = "30s"
    ordered_by_key: bool = False
    max_deliveries: Annotated[int, msgspec.Meta(ge=1, le=DELIVERIES_MAX)] = 10
    tags: Tags = msgspec.field(default_factory=list)
    tags_all: Tags = msgspec.field(default_factory=list)
    tags_none: Tags = msgspec.field(default_factory=list)


class LeasedJob(Message, kw_only=True):
    """One job: a record, and the receipt that identifies this delivery until ``lease_until``."""

    receipt: str
    deliveries: int
    lease_until: int


class ReceivedJobs(Answer):
    """Jobs, partition by partition; empty if no job was available."""

    items: list[LeasedJob]


class AckJobs(Request):
    """Body of ``:ack``."""

    receipts: Receipts


class NackJobs(Request, omit_defaults=True):
    """Body of ``:nack``: the jobs are delivered again, after a ``delay``.

    With ``undelivered`` this delivery does not count: the jobs were received but not processed.
    """

    receipts: Receipts
    delay: Duration = "0s"
    reason: Reason = ""
    undelivered: bool = False


class ExtendJobs(Request):
    """Body of ``:extend``: the leases of the jobs then end ``lease`` from now."""

    receipts: Receipts
    lease: Duration = "30s"


class DeadLetterJobs(Request):
    """Body of ``:dead-letter``."""

    receipts: Receipts
    reason: Reason = ""


Settling = AckJobs | NackJobs | ExtendJobs | DeadLetterJobs


class LostReceipt(Answer):
    """A job receipt that is no longer valid, and the reason."""

    receipt: str
    code: str
    detail: str


class SettledJobs(Answer, omit_defaults=True):
    """``settled`` is the number of changed jobs; ``failed`` has the job receipts that were not valid.

    ``lease_until`` is the end of the leases, if the request has extended leases.
    """

    settled: int
    failed: list[LostReceipt]
    lease_until: int = 0


class QueuePartition(Answer):
    """The jobs of one partition.

    Jobs below ``start_offset`` are done; jobs from ``next_offset`` on were never delivered. ``waiting`` jobs
    are delivered again, now or later, or wait for an earlier job of their key. ``dead`` jobs are being sent
    to the dead-letter topic.
    """

    partition: int
    start_offset: int
    next_offset: int
    leased: int
    waiting: int
    dead: int


class QueueDescription(Answer):
    """A queue.

    ``receivers`` is the number of requests that wait for jobs. The three lists of tags select the records
    that are jobs.
    """

    topic: str
    group: str
    ordered_by_key: bool
    receivers: int
    partitions: list[QueuePartition]
    tags: list[str] = msgspec.field(default_factory=list)
    tags_all: list[str] = msgspec.field(default_factory=list)
    tags_none: list[str] = msgspec.field(default_factory=list)


RECEIVE = Operation(
    name="queues.receive",
    request="POST /v1/queues/{topic}/{group}:receive",
    summary="Receive jobs of a queue",
    text=(
        "Each job is leased: no other worker gets it before the lease ends. Acknowledge it by then. The "
        "first receive creates the queue, which begins at the committed offset of the group, or at the "
        "earliest record. All receives must have the order and the tags of the queue."
    ),
    leader=Leader.GROUP,
    body=ReceiveJobs,
    answer=ReceivedJobs,
    success={200: "jobs, or none after `wait`"},
    errors=(
        *STORED,
        errors.TopicNotFound,
        errors.Conflict,
        errors.UndecodableBatch,
        errors.QuotaExceeded,
        errors.ConnectionLost,
        errors.Draining,
    ),
)

ACK = Operation(
    name="queues.ack",
    request="POST /v1/queues/{topic}/{group}:ack",
    summary="Acknowledge jobs",
    text=(
        "The jobs are done, and are not delivered again. May be repeated."
        " 207 if some receipts are no longer valid, and 409 `lease_lost` if none is valid."
    ),
    leader=Leader.GROUP,
    body=AckJobs,
    answer=SettledJobs,
    success={200: "all receipts were valid", 207: "some receipts were valid"},
    errors=(*STORED, errors.LeaseLost, errors.QueueNotFound),
)

NACK = Operation(
    name="queues.nack",
    request="POST /v1/queues/{topic}/{group}:nack",
    summary="Give jobs back",
    text=(
        "The jobs are delivered again, after `delay`; or go to the dead-letter topic after `max_deliveries`. "
        "With `undelivered` they were not processed: this delivery does not count; without `delay` and "
        "`reason`."
        " 207 if some receipts are no longer valid, and 409 `lease_lost` if none is valid."
    ),
    leader=Leader.GROUP,
    body=NackJobs,
    answer=SettledJobs,
    success={200: "all receipts were valid", 207: "some receipts were valid"},
    errors=(*STORED, errors.LeaseLost, errors.QueueNotFound),
)

EXTEND = Operation(
    name="queues.extend",
    request="POST /v1/queues/{topic}/{group}:extend",
    summary="Extend the leases of jobs",
    text=(
        "The leases end `lease` after now."
        " 207 if some receipts are no longer valid, and 409 `lease_lost` if none is valid."
    ),
    leader=Leader.GROUP,
    body=ExtendJobs,
    answer=SettledJobs,
    success={200: "all receipts were valid", 207: "some receipts were valid"},
    errors=(*STORED, errors.LeaseLost, errors.QueueNotFound),
)

DEAD_LETTER = Operation(
    name="queues.dead_letter",
    request="POST /v1/queues/{topic}/{group}:dead-letter",
    summary="Dead-letter jobs",
    text=(
        "The jobs go to the dead-letter topic of the group: see `/v1/dead-letters/{topic}/{group}`."
        " 207 if some receipts are no longer valid, and 409 `lease_lost` if none is valid."
    ),
    leader=Leader.GROUP,
    body=DeadLetterJobs,
    answer=SettledJobs,
    success={200: "all receipts were valid", 207: "some receipts were valid"},
    errors=(*STORED, errors.LeaseLost, errors.QueueNotFound),
)

DESCRIBE = Operation(
    name="queues.describe",
    request="GET /v1/queues/{topic}/{group}",
    summary="Describe a queue",
    text="With its progress in each partition, and the number of open jobs.",
    leader=Leader.GROUP,
    answer=QueueDescription,
    success={200: "the queue"},
    errors=(
        errors.Overloaded,
        errors.CommitUnknown,
        errors.TopicNotFound,
        errors.QueueNotFound,
    ),
)

DELETE = Operation(
    name="queues.delete",
    request="DELETE /v1/queues/{topic}/{group}",
    summary="Delete a queue",
    text=(
        "Forgets which jobs are open. The committed offsets of the group stay; the next receive begins "
        "there, so that jobs above them are delivered again."
    ),
    leader=Leader.GROUP,
    answer=Nothing,
    success={204: "the queue is deleted"},
    errors=(*STORED, errors.QueueNotFound),
)
