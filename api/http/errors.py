"""Maps errors to RFC 9457 problems: one table from the class of an error to status, title and explanation.

The status of each error is decided in this module only.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from aiohttp import web

from raftlog import errors
from raftlog.errors import RaftlogError
from raftlog.wire import media_types
from raftlog.wire.problems import ProblemBody, problem_body


class Kind(NamedTuple):
    """One kind of problem: status and title for the body of a response, cause and remedy for the page about
    it.
    """

    status: int
    title: str
    cause: str
    remedy: str


TABLE: dict[type[RaftlogError], Kind] = {
    errors.InvalidRequest: Kind(
        422,
        "The request is not valid",
        "A field of the request is invalid: `field` names it.",
        "Send what `detail` asks for.",
    ),
    errors.InvalidRecord: Kind(
        422,
        "A record is not valid",
        "A record is invalid: `errors` lists JSON pointers and reasons for all records.",
        "Correct these records and send the request again.",
    ),
    errors.CorruptBatch: Kind(
        422,
        "A batch is damaged",
        "The bytes are not a batch: its checksum, length, count or magic is wrong, or its records cannot be "
        "read (the topic's setting `validate.records`, on by default).",
        "Build the batch again; if that does not help, check the network path for corruption.",
    ),
    errors.RecordTooLarge: Kind(
        413,
        "Too large",
        "A batch is above the topic's `max.message.bytes`, or a body above the broker's limit: `limit_bytes` "
        "is the limit. If the body is too large, the connection is closed.",
        "Send smaller requests, or raise the limit.",
    ),
    errors.UnsupportedMediaType: Kind(
        415,
        "This media type is not supported",
        "`Content-Type` or `Content-Encoding` names a format that this path does not support.",
        "Send a format in `supported`.",
    ),
    errors.TopicNotFound: Kind(
        404,
        "No such topic",
        "No topic has this name, or it was deleted during the request.",
        "Create the topic, or correct the name: `GET /v1/topics` lists all.",
    ),
    errors.PartitionNotFound: Kind(
        404,
        "No such partition",
        "The topic has no such partition.",
        "Partitions are numbered from 0; `GET /v1/topics/{topic}` has their number.",
    ),
    errors.PartitionDecommissioned: Kind(
        409,
        "The partition takes no more records",
        "The partition is decommissioned: its records can be read until retention deletes them, and then the "
        "partition is removed. No record of this request was stored, or will be.",
        "Send to one of the `partitions` first partitions, or name no partition: the server chooses one by "
        "the key. Clients read the topic's metadata again.",
    ),
    errors.TopicExists: Kind(
        409,
        "The topic exists",
        "A topic of this name exists.",
        "Use it, or choose another name.",
    ),
    errors.JoinRefused: Kind(
        403,
        "This broker may not join",
        "The token is of another cluster or has expired, or the proof was not made with the cluster's "
        "secret.",
        "Get a token with `raftlog cluster token`, and the secret from a broker of this cluster.",
    ),
    errors.Conflict: Kind(
        409,
        "Not in this state",
        "The request is valid, but the state of brokers or replicas does not allow it.",
        "`detail` says what to do first.",
    ),
    errors.GroupNotFound: Kind(
        404,
        "No such consumer group",
        "No group of this name has members or committed offsets.",
        "Join the group or commit an offset, which creates it. `GET /v1/groups` lists all.",
    ),
    errors.MemberNotFound: Kind(
        404,
        "No such member",
        "The group has no such member: it never joined, has left, its session has expired, or another "
        "process has its `instance_id`.",
        "Join again.",
    ),
    errors.StaleGeneration: Kind(
        409,
        "The group has another generation",
        "The group has had a rebalance since; `current` is its generation.",
        "Join again. Uncommitted records are delivered again, perhaps to another member.",
    ),
    errors.RebalanceInProgress: Kind(
        409,
        "The group rebalances",
        "The group waits for its members to join, or for the plan of its leader.",
        "Join again; repeat a join or sync that took too long unchanged.",
    ),
    errors.PreconditionFailed: Kind(
        412,
        "The resource has changed",
        "The resource has changed since it was read.",
        "Read it again before you retry.",
    ),
    errors.OffsetOutOfRange: Kind(
        416,
        "The offset is outside the log",
        "The offset is above the high watermark (416), or below the log start (410), where retention or "
        "a request has deleted the records. `start` and `end` are the range; `archived_from` is the next "
        "offset that the archive has, if it has one below `start`.",
        "Read from `archived_from` or `start`, or from an offset up to `end`.",
    ),
    errors.UndecodableBatch: Kind(
        422,
        "A stored batch cannot be read as records",
        "A stored batch has a valid checksum but undecodable records: its topic had `validate.records` "
        "off, or another release stored it. `topic`, `partition` and `offset` locate it.",
        "Continue at `next_offset`, or fetch with `undecodable=skip`. Binary fetches return the batch "
        "unchanged.",
    ),
    errors.ArchiveDamaged: Kind(
        500,
        "A file of the archive is damaged",
        "The records at `offset` are below the log start, and the file of the archive that has them is "
        "missing or has another checksum. Other offsets can be read.",
        "Find the damage with `raftlog archive verify`, and restore the file from a copy.",
    ),
    errors.ArchiveUnavailable: Kind(
        503,
        "The archive does not answer",
        "The records are below the log start, and the storage of the archive is slow, down or refuses the "
        "broker, or there are too many reads of the archive. Records in the log can be read.",
        "Retry after `retry_after_ms`. If the error persists, the broker's log has the error of the storage.",
    ),
    errors.OutOfOrderSequence: Kind(
        409,
        "A batch of this producer is missing",
        "A batch of this producer is missing: the expected sequence is `expected_sequence`.",
        "Send the missing batch first. A producer that no longer has this batch needs a new id.",
    ),
    errors.ProducerFenced: Kind(
        403,
        "A newer producer took over",
        "Another producer with the same id has the newer epoch `current_epoch`.",
        "Close this producer, or allocate a new id.",
    ),
    errors.TransactionNotFound: Kind(
        404,
        "No such transaction",
        "No producer has opened this transactional id, or none has used it for days.",
        "Open the transactional id, and begin a transaction.",
    ),
    errors.TransactionAborted: Kind(
        409,
        "The transaction was aborted",
        "The transaction exceeded its time limit, or another producer with its id or an operator aborted it. "
        "None of its records is visible.",
        "Begin another transaction, and repeat the work.",
    ),
    errors.TransactionEnding: Kind(
        409,
        "The previous transaction is not complete",
        "The outcome of the previous transaction is decided, but not all of its partitions have it yet.",
        "Retry the request.",
    ),
    errors.OffsetsPending: Kind(
        409,
        "A transaction may still commit offsets of these partitions",
        "An open transaction has added offsets of partitions that the request reads or commits. Its end "
        "decides which offsets are committed.",
        "Retry the request. `GET /v1/groups/{group}/offsets` names the transaction, and `POST "
        "/v1/transactions/{transaction}:abort` ends it.",
    ),
    errors.IdempotencyKeyReused: Kind(
        422,
        "The idempotency key belongs to another request",
        "A request with this `Idempotency-Key` and another body, path or media type was carried out or is "
        "running.",
        "Send each request with its own key, and repeat requests unchanged.",
    ),
    errors.QueueNotFound: Kind(
        404,
        "No such queue",
        "The group does not work off this topic as a queue: nothing was received yet, or the queue was "
        "deleted.",
        "Receive jobs, which creates the queue, or correct the names.",
    ),
    errors.LeaseLost: Kind(
        409,
        "The lease of a job has ended",
        "The lease has ended, and another worker has or had the job; or the job was returned or is a dead "
        "letter.",
        "Nothing was changed. Undo the effect of the job, or make the job safe to repeat; request longer "
        "leases, or extend them in time.",
    ),
    errors.DelayedNotFound: Kind(
        404,
        "No such delayed message",
        "The message was cancelled, was delivered more than 10 minutes ago, or was never accepted.",
        "Use a `delayed_id` from the response to a produce; `GET /v1/delayed` lists pending messages.",
    ),
    errors.DelayedAlreadyDelivered: Kind(
        409,
        "The delayed message is delivered",
        "The message is in its target topic or is being delivered: it can be neither cancelled nor "
        "rescheduled.",
        "Nothing was changed. Undo its effect by another message.",
    ),
    errors.ScheduleNotFound: Kind(
        404,
        "No such schedule",
        "The schedule was deleted, or never created.",
        "Use a `schedule_id` that `GET /v1/schedules` lists.",
    ),
    errors.IdempotencyInProgress: Kind(
        409,
        "The first request with this key is running",
        "The first request with this `Idempotency-Key` has no response yet. If its broker has stopped, it is "
        "aborted at the end of its `timeout`, and the next repetition is carried out.",
        "Repeat the request after `retry_after_ms`.",
    ),
    errors.NotLeader: Kind(
        421,
        "Another broker leads this partition",
        "The request has `route=none`, and another broker leads the partition.",
        "Send the request to the broker in `leader` and `leader_http`, or omit `route`.",
    ),
    errors.ReplicaNotInSync: Kind(
        421,
        "The replica of this broker cannot serve the read",
        "The request has `read_from=closest` and `route=none`, and the replica of this broker is not in "
        "sync: its data is older than `max_staleness`, it does not have `min_offset` or the requested offset "
        "yet, or it does not have the records.",
        "Send the request to the leader, in `leader` and `leader_http`, or omit `route`.",
    ),
    errors.NoLeader: Kind(
        503,
        "No leader",
        "The partition, or the cluster, is electing a leader.",
        "Retry the request. If the error persists, a majority of the replicas is down: `GET "
        "/v1/topics/{topic}/partitions` lists the awaited brokers.",
    ),
    errors.NotEnoughReplicas: Kind(
        503,
        "Too few replicas are healthy",
        "Fewer replicas are in sync than the topic's `min.insync.replicas` requires.",
        "Retry the request; start the brokers that are down.",
    ),
    errors.Overloaded: Kind(
        503,
        "Too much in flight",
        "The broker has too many bytes in flight, too many connections, too many calls open with the other "
        "brokers, no file descriptor for a read, or no room for more state; or a delay cannot be measured, "
        "because the brokers have not agreed on the time yet.",
        "Retry after `retry_after_ms`.",
    ),
    errors.QuotaExceeded: Kind(
        429,
        "The share of a client, group or topic is used up",
        "This client address has too many bytes of bodies, waiting requests or connections; or a client, a "
        "group or a topic has its share of the state that a coordinator keeps.",
        "Retry after `retry_after_ms`; send fewer requests at a time, or free state as the `detail` says.",
    ),
    errors.Draining: Kind(
        503,
        "The broker is stopping",
        "The broker is stopping.",
        "Retry at another broker.",
    ),
    errors.StorageFull: Kind(
        507,
        "The disk is full",
        "The disk of the leader is full, or it has no file descriptor left. Reads continue.",
        "Retry: a broker with room becomes leader within seconds; else writes resume once there is space.",
    ),
    errors.CommitUnknown: Kind(
        504,
        "The outcome of the request is unknown",
        "The time ran out, or leadership was lost, during replication: the records may have been stored "
        "or may still be. `committed` is true if they are committed, and false if none of them is visible.",
        "Retry with the producer headers or an `Idempotency-Key`, so that the request is stored once; or "
        "read whether it is stored.",
    ),
    errors.OutcomeForgotten: Kind(
        410,
        "The outcome of the transaction is forgotten",
        "Later transactions of this producer have ended, and the outcome of this one is no longer kept.",
        "Read what the transaction wrote with `isolation=committed`.",
    ),
    errors.LeadershipNotMoved: Kind(
        504,
        "Leadership has not moved in time",
        "No other replica became leader in time: the target may be behind, and may still win.",
        "Check the leader, and retry.",
    ),
    errors.ConnectionLost: Kind(
        504,
        "Another broker did not answer",
        "The broker to which the request was forwarded did not answer.",
        "Retry a write with the producer headers or an `Idempotency-Key`, so that it is stored once; or read "
        "whether it is stored.",
    ),
    errors.MalformedRequest: Kind(
        400,
        "The request is not HTTP",
        "The request is not HTTP/1.1, or the framing of its body does not match its headers: the connection "
        "is closed. `detail` and the broker's log do not quote such a request.",
        "Send HTTP/1.1; check proxies between client and broker.",
    ),
    errors.UriTooLong: Kind(
        414,
        "The path is too long",
        "The path and the query have more than `limit_bytes`. The connection is closed.",
        "Shorten the query.",
    ),
    errors.HeadersTooLarge: Kind(
        431,
        "The headers are too large",
        "A header has more than `limit_bytes`, or there are too many headers. The connection is closed.",
        "Send fewer and smaller headers.",
    ),
    errors.MisdirectedRequest: Kind(
        421,
        "This broker has another name",
        "The header `Host` names another server.",
        "Add the name to the broker's setting `http.allowed_hosts`, or use a name of the broker.",
    ),
    errors.OriginNotAllowed: Kind(
        403,
        "This web page may not write to this broker",
        "A web page of another origin tried to write.",
        "Add the origin to the broker's setting `cors.allowed_origins`.",
    ),
    errors.PathNotFound: Kind(
        404,
        "No such path",
        "There is no resource at this path. A path with a trailing slash is another path.",
        "`/docs` lists all paths.",
    ),
    errors.MethodNotAllowed: Kind(
        405,
        "This path does not support the method",
        "The path does not support this method.",
        "Use a method in `allowed`, or in the header `Allow`.",
    ),
    errors.NotAcceptable: Kind(
        406,
        "No acceptable media type",
        "`Accept` has no media type that this path supports.",
        "Accept a media type in `supported`.",
    ),
    errors.RequestTimeout: Kind(
        408,
        "The body did not arrive",
        "The body did not arrive in time. The connection is closed.",
        "Retry the request; send a large body in parts.",
    ),
    errors.BrokerNotFound: Kind(
        404,
        "No such broker",
        "No broker of this id has registered.",
        "`GET /v1/brokers` lists all.",
    ),
    errors.RecordNotFound: Kind(
        404,
        "No such record",
        "The offset is in range, but its record is a control record.",
        "Fetch from this offset on: the response begins with the next record.",
    ),
    errors.InternalError: Kind(
        500,
        "Internal error",
        "An error in the broker; the broker's log describes it under `request_id`.",
        "Report the error with these lines of the log.",
    ),
}

GONE = 410
RETRY_AFTER_MS_DEFAULT = 300
_WITH_RETRY_AFTER = frozenset({429, 503, 507})
_LAST = frozenset(
    {400, 408, 413, 414, 431}
)  # statuses after which later bytes cannot be read, or are not worth reading


def status_and_title(error: RaftlogError) -> tuple[int, str]:
    """Return status and title of an error: of the nearest class in the table. An offset below the log start
    has status 410.
    """
    if isinstance(error, errors.OffsetOutOfRange) and _is_below_start(error):
        return GONE, "These records are deleted"
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls][:2]
    return TABLE[errors.InternalError][:2]


def problem(error: RaftlogError, *, instance: str, request_id: str) -> ProblemBody:
    """Return the body of a problem document."""
    status, title = status_and_title(error)
    body = problem_body(error, status=status, title=title, instance=instance, request_id=request_id)
    if error.retryable and status in _WITH_RETRY_AFTER:
        body.setdefault("retry_after_ms", RETRY_AFTER_MS_DEFAULT)
    return body


def problem_response(error: RaftlogError, *, instance: str, request_id: str) -> web.Response:
    """Return the response for an error."""
    body = problem(error, instance=instance, request_id=request_id)
    status = int(str(body["status"]))
    response = web.Response(
        status=status, body=msgspec.json.encode(body), headers={"Content-Type": media_types.PROBLEM}
    )
    after_ms = body.get("retry_after_ms")
    if isinstance(after_ms, int):
        response.headers["Retry-After"] = str(max(1, -(-after_ms // 1000)))
    if isinstance(error, errors.MethodNotAllowed) and isinstance(
        allowed := error.details.get("allowed"), list
    ):
        response.headers["Allow"] = ", ".join(allowed)
    if status in _LAST:
        response.force_close()
    return response


def _is_below_start(error: RaftlogError) -> bool:
    offset, start = error.details.get("offset"), error.details.get("start")
    return isinstance(offset, int) and isinstance(start, int) and offset < start
