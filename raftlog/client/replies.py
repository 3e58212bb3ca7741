"""Reads responses of brokers, and the errors in responses. Needs no HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from raftlog.errors import ConnectionLost, RaftlogError, Unknown
from raftlog.wire.decoding import UNREADABLE, decoder_of
from raftlog.wire.problems import Problem, read_problem

_BAD_REQUEST: Final = 400
Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Reply:
    """A successful response."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    doubt: RaftlogError | None = None
    """The error of an earlier attempt that may have changed something."""

    def read(self, kind: type[Body]) -> Body:
        """Decode the body. Raises ``ConnectionLost`` for an invalid body, which no broker has sent."""
        try:
            return decoder_of(kind).decode(self.body)
        except UNREADABLE as error:
            raise ConnectionLost(f"the response cannot be read: {error}") from error

    def number(self, header: str, default: int = -1) -> int:
        """The number in a header; ``default`` if the header is missing or not a number."""
        text = self.headers.get(header, "")
        return int(text) if text.isascii() and text.isdigit() else default


def tls_failure(error: OSError) -> str | None:
    """Why there is no TLS connection; None for an error without relation to TLS.

    An ``errno`` does not explain errors of TLS.
    """
    if not hasattr(error, "library"):
        return None
    if refusal := getattr(error, "verify_message", ""):
        return f"its TLS certificate is not accepted: {refusal}"
    return f"TLS failed ({error}); a port without TLS has http:// or raftlog:// in its address"


def without_http(base: str, why: str) -> str:
    """Return ``why``, with a hint if ``base`` is not ``https``: TLS servers close plain connections."""
    if base.startswith("https"):
        return why
    return f"{why}; a port with TLS has https:// in its address"


def error_of(reply: Reply, method: str, url: str) -> RaftlogError:
    """The error in a response that reports no success."""
    error = read_problem(reply.body)
    if error is not None:
        return error if type(error) is not RaftlogError else _newer(error, reply.body)
    # Not from a broker: a proxy answered, and may have forwarded the request.
    why = f"status {reply.status} and no problem body"
    if reply.status == _BAD_REQUEST:
        why = without_http(url, why)  # also the response of many servers with TLS
    return ConnectionLost(f"{method} {url.split('?')[0]}: {why}")


def _newer(error: RaftlogError, body: bytes) -> RaftlogError:
    """The error for a code that this client does not know.

    ``retryable`` in the body decides the error's type.
    """
    try:
        problem = decoder_of(Problem).decode(body)
    except UNREADABLE:
        return error
    kind = Unknown if problem.retryable else RaftlogError
    return kind(str(error), **{**error.details, "code": problem.code})
