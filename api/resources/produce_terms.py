"""Reads the terms of produce requests from their heads, before their bodies are read. The terms are the
parameters and headers.

Decides: which parameters and headers can be combined. Raises ``InvalidRequest``, which names the field.
"""

from __future__ import annotations

from typing import NamedTuple

from api.http import parameters
from api.http.idempotency import key_of, refuse_key
from api.http.producers import Producer, producer_of
from api.http.requests import Request
from api.http.routes import Call
from api.resources import delays
from partitions.values import QUORUM, Acks
from raftlog.errors import InvalidRequest
from raftlog.wire import headers, records

NOT_YET = ("If-Offset", "Raftlog-Fence")
"""Headers that would change the meaning of a produce and that this release does not support, so they are
refused.
"""


class BatchTerms(NamedTuple):
    """The parameters and headers of a produce of batches."""

    acks: Acks
    timeout_ms: int
    capped: dict[str, str] | None  # see ``Call``
    producer: Producer | None


def batch_terms(call: Call) -> BatchTerms:
    """Read the terms of a produce of batches. Raises ``InvalidRequest``."""
    _refuse_unknown_meaning(call.request)
    refuse_key(
        call.request,
        "cannot be used for binary batches, which have a producer and a sequence in their headers: get a "
        f"producer with POST {records.CREATE.path}",
    )
    producer = producer_of(call.request)
    if producer is not None and producer.is_sequenced:
        raise InvalidRequest(
            f"{headers.PRODUCER_SEQUENCE} is for JSON; a binary batch has its producer in its header",
            field=headers.PRODUCER_SEQUENCE,
        )
    if delays.in_query(call):
        raise InvalidRequest("binary batches cannot be delayed; send records as JSON", field="delay")
    acks, timeout_ms = _acks_and_timeout(call)
    return BatchTerms(acks, timeout_ms, call.capped, producer)


class RecordTerms(NamedTuple):
    """The parameters and headers of a produce of records."""

    media_type: str
    key: str | None
    producer: Producer | None
    acks: Acks
    timeout_ms: int
    capped: dict[str, str] | None  # see ``Call``
    is_delayed: bool


def record_terms(call: Call) -> RecordTerms:
    """Read the terms of a produce of records. Raises ``InvalidRequest``."""
    request = call.request
    _refuse_unknown_meaning(request)
    key, producer = key_of(request), producer_of(request)
    acks, timeout_ms = _acks_and_timeout(call)
    media_type, is_delayed = parameters.media_type_of(request), delays.in_query(call)
    return RecordTerms(media_type, key, producer, acks, timeout_ms, call.capped, is_delayed)


def _acks_and_timeout(call: Call) -> tuple[Acks, int]:
    limits = call.services.limits
    if not call.query:
        return QUORUM, limits.produce_timeout_ms_default
    timeout_ms = call.capped_ms("timeout", limits.produce_timeout_ms_max, limits.produce_timeout_ms_default)
    return parameters.acks(call.query), timeout_ms


def _refuse_unknown_meaning(request: Request) -> None:
    for name in NOT_YET:
        if name in request.headers:
            raise InvalidRequest(
                f"{name} is not supported by this release; omit it",
                field=name,
            )
