"""Sends delayed messages, and lists, reschedules and cancels pending ones.

Decides: which requests are repeated. A send whose answer was lost is not repeated, since the message could be
delivered twice. Requests that change or cancel a message are repeated.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from raftlog.client import values
from raftlog.client.options import Duration, milliseconds
from raftlog.client.session import Session
from raftlog.errors import ConnectionLost, DelayedAlreadyDelivered, InvalidRequest
from raftlog.records.keys import encode_key
from raftlog.wire import bodies, records
from raftlog.wire import delays as wire


@dataclass(frozen=True, slots=True)
class DelayedReceipt:
    """The receipt of an accepted message: its id, its delivery time, and the partition that will store it."""

    id: str
    deliver_at_ms: int
    partition: int


class AsyncDelayed:
    """The delayed messages of the cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def send(
        self,
        topic: str,
        value: values.Value = None,
        *,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
        key: values.Key = None,
        partition: int | None = None,
        headers: values.Headers | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | int | None = None,
    ) -> DelayedReceipt:
        """Store one record later: after ``delay``, such as ``"30m"``, or at the time ``deliver_at``.

        ``timestamp`` is the timestamp of the record, in topics with create times; the default is the time at
        which the record is stored. Returns once the message is durably accepted. After ``CommitUnknown`` or
        ``ConnectionLost`` the message may be accepted or not: ``list`` shows all pending messages.
        """
        record = record_in_json(value, key=key, partition=partition, headers=headers, tags=tags)
        record.delay, record.deliver_at = _delay_ms(delay, deliver_at), _at_ms(deliver_at)
        record.timestamp = _at_ms(timestamp)
        body = _Produce([record])
        path = records.PRODUCE.at(topic=topic)
        reply = await self._session.ask_any(records.PRODUCE.method, path, body=body, may_repeat=False)
        (receipt,) = reply.read(bodies.Produced).records
        if not isinstance(receipt.delayed_id, str) or not isinstance(receipt.deliver_at, int):
            raise ConnectionLost("the response has no delayed_id: the broker is of an earlier version")
        return DelayedReceipt(receipt.delayed_id, receipt.deliver_at, int(receipt.partition or 0))

    async def list(self, topic: str | None = None) -> list[wire.DelayedMessage]:
        """Return all pending messages of one topic or of all topics, sorted by id."""
        query = {} if topic is None else {"topic": str.__str__(topic)}  # an Enum is text, too
        return await self._session.all_items(wire.LIST, query=query)

    async def describe(self, delayed_id: str) -> wire.DelayedMessageDescription:
        """One pending message with its record. Raises ``DelayedNotFound``, ``DelayedAlreadyDelivered``."""
        return await self._session.call(wire.DESCRIBE, delayed_id=delayed_id)

    async def reschedule(
        self, delayed_id: str, *, delay: Duration | None = None, deliver_at: datetime | int | None = None
    ) -> wire.DelayedMessageDescription:
        """Change the delivery time of a pending or failed message. Raises the errors of ``describe``.

        A ``delay`` is counted from the time at which a broker carries out the request.
        """
        body = wire.RescheduleMessage(_delay_ms(delay, deliver_at), _at_ms(deliver_at))
        return await self._session.call(wire.RESCHEDULE, body, delayed_id=delayed_id)

    async def cancel(self, delayed_id: str) -> bool:
        """Cancel a message. True if it will never be delivered, False if it is already delivered.

        Raises ``DelayedNotFound`` if the message was delivered more than 10 minutes ago, or was never
        accepted.
        """
        try:
            await self._session.call(wire.CANCEL, delayed_id=delayed_id)
        except DelayedAlreadyDelivered:
            return False
        return True


def record_in_json(
    value: values.Value,
    *,
    key: values.Key,
    partition: int | None,
    headers: values.Headers | None,
    tags: Sequence[str],
) -> RecordInJson:
    """A record for a JSON request. Key and value are in base64, so that they may have any bytes."""
    pairs = values.encode_headers(headers, tags)
    content, encoded_key = values.encode_value(value), encode_key(key)
    return RecordInJson(
        value=_base64(content),
        encoding=None if content is None else "base64",
        key=_base64(encoded_key),
        key_encoding="base64" if encoded_key is not None else "utf8",
        headers_raw=[(name, _base64(text)) for name, text in pairs],
        partition=partition,
    )


class RecordInJson(msgspec.Struct, omit_defaults=True):
    """A record in a JSON request; see ``raftlog.wire.bodies.NewRecord``."""

    value: str | None
    encoding: str | None = None
    key: str | None = None
    key_encoding: str = "utf8"
    headers_raw: Sequence[tuple[str, str | None]] = ()
    partition: int | None = None
    timestamp: int | None = None
    delay: int | None = None
    deliver_at: int | None = None


class _Produce(msgspec.Struct):
    records: Sequence[RecordInJson]


def _delay_ms(delay: Duration | None, deliver_at: datetime | int | None) -> int | None:
    if (delay is None) == (deliver_at is None):
        raise InvalidRequest("give either delay or deliver_at", field="delay")
    return None if delay is None else milliseconds("delay", delay)


def _at_ms(deliver_at: datetime | int | None) -> int | None:
    return None if deliver_at is None else values.timestamp_ms(deliver_at)


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
