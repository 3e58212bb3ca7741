"""Errors on the wire: RFC 9457 problem bodies, which brokers write and clients read.

``Problem`` has the fields that every problem has. A kind of problem may have further fields, such as the
valid range or the expected sequence; these become the error's ``details``.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from raftlog.errors import Detail, RaftlogError, from_code
from raftlog.wire.decoding import UNREADABLE
from raftlog.wire.documents import page_of

TYPE_BASE = "https://raftlog.dev"

ProblemBody = dict[str, int | str | bool | list[str] | None]
_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DETAIL: msgspec.json.Decoder[Detail] = msgspec.json.Decoder(int | str | bool | list[str] | None)


class Problem(msgspec.Struct, frozen=True):
    """The fields of every problem. ``retryable`` says whether a retry can succeed.

    ``type`` is a URL that identifies the kind of problem. Every broker serves a page that explains the kind
    at the path of this URL.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    instance: str = ""
    request_id: str = ""
    retry_after_ms: int | None = None


_COMMON = frozenset(Problem.__struct_fields__) - {"retry_after_ms"}


def problem_body(
    error: RaftlogError, *, status: int, title: str, instance: str, request_id: str
) -> ProblemBody:
    """The problem body that describes an error."""
    return {
        "type": TYPE_BASE + page_of(type(error).code),
        "title": title,
        "status": status,
        "instance": instance,
        "request_id": request_id,
        **error.problem,
    }


def read_problem(body: bytes) -> RaftlogError | None:
    """The error in a problem body; ``None`` if the bytes are not a problem of this API."""
    try:
        return error_of({name: _detail(raw) for name, raw in _DECODER.decode(body).items()})
    except UNREADABLE:
        return None


def error_of(problem: Mapping[str, Detail]) -> RaftlogError | None:
    """The error that a problem describes; None without a ``code``.

    A receipt in a response 207 may have a problem.
    """
    code = problem.get("code")
    if not isinstance(code, str):
        return None
    details = {name: value for name, value in problem.items() if name not in _COMMON}
    return from_code(code, str(problem.get("detail", "")), details)


def _detail(raw: msgspec.Raw) -> Detail:
    """Decode the value of a detail; return a value of an unknown type as JSON text."""
    try:
        return _DETAIL.decode(raw)
    except UNREADABLE:
        return bytes(raw).decode(errors="replace")
