"""The operations on delayed messages, with their bodies."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from raftlog import errors
from raftlog.wire.bodies import Answer, Brief, Encoding, Int64, Request
from raftlog.wire.groups import Duration
from raftlog.wire.operation import STORED, Leader, Nothing, Operation

DELAYED_RECORDS_MAX = 900  # per request
DELAYED_BYTES_MAX = 8 << 20
SHOWN_MAX = 100  # per page: each message is read from the log

StateName = Literal["pending", "delivering", "failed"]


class RescheduleMessage(Request):
    """Body of ``PATCH`` of a delayed message: ``delay`` or ``deliver_at``."""

    delay: Duration | None = None
    deliver_at: Int64 | Brief | None = None


class DelayedMessage(Answer, omit_defaults=True):
    """A message that is not in its topic yet.

    ``reason`` says why a message with the state ``failed`` has failed.
    """

    delayed_id: str
    topic: str
    partition: int
    deliver_at: int
    state: StateName
    size_bytes: int
    key: str | None
    key_encoding: Literal["base64"] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class DelayedMessageDescription(DelayedMessage, kw_only=True):
    """A delayed message with its record."""

    value: msgspec.Raw
    encoding: Encoding
    headers: dict[str, str | None]
    tags: list[str]
    accepted_at: int
    headers_raw: list[tuple[str, str | None]] | UnsetType = UNSET


class DelayedList(Answer):
    """A page of delayed messages, by id."""

    items: list[DelayedMessage]
    next_page_token: str | None = None


LIST = Operation(
    name="delayed.list",
    request="GET /v1/delayed",
    summary="List delayed messages",
    text=(
        f"The messages that are not in their topics yet, by id; at most {SHOWN_MAX} in a page, fewer if "
        "their keys are large."
    ),
    leader=Leader.DELAYED,
    answer=DelayedList,
    success={200: "a page"},
    errors=(errors.Overloaded,),
)

DESCRIBE = Operation(
    name="delayed.describe",
    request="GET /v1/delayed/{delayed_id}",
    summary="Describe a delayed message",
    text=("With its record. The error is `delayed_already_delivered` for 10 minutes after a delivery."),
    leader=Leader.DELAYED,
    answer=DelayedMessageDescription,
    success={200: "the message"},
    errors=(
        errors.DelayedNotFound,
        errors.Overloaded,
        errors.DelayedAlreadyDelivered,
    ),
)

RESCHEDULE = Operation(
    name="delayed.reschedule",
    request="PATCH /v1/delayed/{delayed_id}",
    summary="Reschedule a delayed message",
    text="Also a message that has failed: its delivery is then tried again.",
    leader=Leader.DELAYED,
    body=RescheduleMessage,
    answer=DelayedMessageDescription,
    success={200: "the message"},
    errors=(*STORED, errors.DelayedNotFound, errors.DelayedAlreadyDelivered),
)

CANCEL = Operation(
    name="delayed.cancel",
    request="DELETE /v1/delayed/{delayed_id}",
    summary="Cancel a delayed message",
    text="204: the message is never delivered. 409 `delayed_already_delivered`: too late. May be repeated.",
    leader=Leader.DELAYED,
    answer=Nothing,
    success={204: "the message is cancelled"},
    errors=(*STORED, errors.DelayedNotFound, errors.DelayedAlreadyDelivered),
)
