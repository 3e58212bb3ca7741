"""Errors as RFC 9457 problems: one table from class to status and title.

    RaftlogError
    └── Rejected
        ├── MalformedRequest        it is not HTTP: an InvalidRequest, and the connection ends
        ├── UriTooLong              path and query are too long
        ├── HeadersTooLarge         a header is too long, or there are too many
        ├── MisdirectedRequest      the header Host names another server
        ├── OriginNotAllowed        a web page of a foreign origin writes
        ├── PathNotFound            no such path here
        ├── MethodNotAllowed        the path has other methods (header Allow)
        ├── NotAcceptable           none of the media types asked for can be given
        ├── RequestTimeout          the body did not arrive in time
        ├── BrokerNotFound          no broker of that id has registered
        └── RecordNotFound          the offset is in range and holds no user's record

These eleven exist in HTTP only. Which status an error has is decided here and nowhere else.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from raftlog import errors
from raftlog.errors import Detail, RaftlogError, Rejected
from raftlog.wire import media_types
from raftlog.wire.problems import ProblemBody, problem_body


class MalformedRequest(errors.InvalidRequest):
    """What was sent is not HTTP/1.1, so that nothing behind it can be read either."""


class UriTooLong(Rejected):
    """``limit_bytes``: how long path and query may be together."""

    code = "uri_too_long"


class HeadersTooLarge(Rejected):
    """A header has more than ``limit_bytes``, or there are too many of them."""

    code = "headers_too_large"


class MisdirectedRequest(Rejected):
    """``Host`` is no name of this broker; ``http.allowed_hosts`` may list it."""

    code = "misdirected_request"


class OriginNotAllowed(Rejected):
    """A web page of another origin writes; ``cors.allowed_origins`` may list it."""

    code = "origin_not_allowed"


class PathNotFound(Rejected):
    """There is nothing at this path; /docs lists what there is."""

    code = "path_not_found"


class MethodNotAllowed(Rejected):
    """``allowed``: the methods that this path has."""

    code = "method_not_allowed"


class NotAcceptable(Rejected):
    """``supported``: the media types that can be answered here."""

    code = "not_acceptable"


class RequestTimeout(Rejected):
    """The body did not arrive in time; nothing was done."""

    code = "request_timeout"
    retryable = True


class BrokerNotFound(Rejected):
    """No broker of that id has registered."""

    code = "broker_not_found"


class RecordNotFound(Rejected):
    """The offset lies in the log and no user's record is there (a control record, or compacted away)."""

    code = "record_not_found"


TABLE: dict[type[RaftlogError], tuple[int, str]] = {
    errors.InvalidRequest: (422, "The request is not valid"),
    errors.InvalidRecord: (422, "A record is not valid"),
    errors.CorruptBatch: (422, "A batch is damaged"),
    errors.RecordTooLarge: (413, "Too large"),
    errors.UnsupportedMediaType: (415, "This media type is not understood here"),
    errors.UnknownTopic: (404, "No such topic"),
    errors.UnknownPartition: (404, "No such partition"),
    errors.TopicExists: (409, "The topic exists"),
    errors.Conflict: (409, "Not in this state"),
    errors.PreconditionFailed: (412, "The resource has changed"),
    errors.OffsetOutOfRange: (416, "The offset is outside the log"),
    errors.UndecodableBatch: (422, "A stored batch cannot be read as records"),
    errors.OutOfOrderSequence: (409, "A batch of this producer is missing"),
    errors.ProducerFenced: (403, "A newer producer took over"),
    errors.NotLeader: (421, "Another broker leads this partition"),
    errors.NoLeader: (503, "No leader"),
    errors.NotEnoughReplicas: (503, "Too few replicas are healthy"),
    errors.Overloaded: (503, "Too much in flight"),
    errors.QuotaExceeded: (429, "This client has too much in flight"),
    errors.Draining: (503, "The broker is stopping"),
    errors.StorageFull: (507, "The disk is full"),
    errors.CommitUnknown: (504, "It is not known whether this happened"),
    errors.LeadershipNotMoved: (504, "Leadership has not moved in time"),
    errors.ConnectionLost: (504, "Another broker did not answer"),
    MalformedRequest: (400, "The request is not HTTP"),
    UriTooLong: (414, "The path is too long"),
    HeadersTooLarge: (431, "The headers are too large"),
    MisdirectedRequest: (421, "This broker has another name"),
    OriginNotAllowed: (403, "This web page may not write here"),
    PathNotFound: (404, "Nothing is here"),
    MethodNotAllowed: (405, "This path has other methods"),
    NotAcceptable: (406, "No acceptable media type"),
    RequestTimeout: (408, "The body did not arrive"),
    BrokerNotFound: (404, "No such broker"),
    RecordNotFound: (404, "No such record"),
    RaftlogError: (500, "Internal error"),
}

GONE = 410
RETRY_AFTER_MS_DEFAULT = 300
_WITH_RETRY_AFTER = frozenset({429, 503, 507})
_LAST = frozenset({400, 408, 413, 414, 431})  # what comes behind cannot be read, or is not worth it


def status_and_title(error: RaftlogError) -> tuple[int, str]:
    """From the table, by the nearest class; an offset below the log start is gone for ever: 410."""
    if isinstance(error, errors.OffsetOutOfRange) and _is_below_start(error):
        return GONE, "These records are gone"
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls]
    return TABLE[RaftlogError]


def problem(error: RaftlogError, *, instance: str, request_id: str) -> ProblemBody:
    """The body of a problem."""
    status, title = status_and_title(error)
    body = problem_body(error, status=status, title=title, instance=instance, request_id=request_id)
    if error.retryable and status in _WITH_RETRY_AFTER:
        body.setdefault("retry_after_ms", RETRY_AFTER_MS_DEFAULT)
    return body


def problem_response(error: RaftlogError, *, instance: str, request_id: str) -> web.Response:
    """The answer to a request that met an error."""
    body = problem(error, instance=instance, request_id=request_id)
    status = int(str(body["status"]))
    response = web.Response(
        status=status, body=msgspec.json.encode(body), headers={"Content-Type": media_types.PROBLEM}
    )
    after_ms = body.get("retry_after_ms")
    if isinstance(after_ms, int):
        response.headers["Retry-After"] = str(max(1, -(-after_ms // 1000)))
    if isinstance(error, MethodNotAllowed) and isinstance(allowed := error.details.get("allowed"), list):
        response.headers["Allow"] = ", ".join(allowed)
    if status in _LAST:
        response.force_close()
    return response


def with_detail(error: RaftlogError, **details: Detail) -> RaftlogError:
    """The same error with facts that only the HTTP side knows."""
    error.details.update(details)
    return error


def _is_below_start(error: RaftlogError) -> bool:
    offset, start = error.details.get("offset"), error.details.get("start")
    return isinstance(offset, int) and isinstance(start, int) and offset < start
