"""The bodies of requests about delayed messages and of their responses."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from raftlog.wire.bodies import Answer, Brief, Encoding, Int64, Request
from raftlog.wire.groups import Duration

DELAYED_RECORDS_MAX = 900  # of one request
DELAYED_BYTES_MAX = 8 << 20

StateName = Literal["pending", "delivering", "failed"]


class RescheduleMessage(Request):
    """Body of ``PATCH`` of a delayed message: one of the two."""

    delay: Duration | None = None
    deliver_at: Int64 | Brief | None = None


class DelayedBody(Answer, omit_defaults=True):
    """A message that is not in its topic yet. ``reason`` says why one has ``failed``."""

    delayed_id: str
    topic: str
    partition: int
    deliver_at: int
    state: StateName
    size: int
    key: str | None
    key_encoding: Literal["base64"] | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class DelayedRecordBody(DelayedBody, kw_only=True):
    """The same with the record."""

    value: msgspec.Raw
    encoding: Encoding
    headers: dict[str, str | None]
    tags: list[str]
    accepted_at: int
    headers_raw: list[tuple[str, str | None]] | UnsetType = UNSET


class DelayedList(Answer):
    """A page of delayed messages, by id."""

    items: list[DelayedBody]
    next_page_token: str | None = None
