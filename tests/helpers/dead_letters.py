"""Dead letters as a worker of group ``mail`` writes them, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.records.failures import FailedRecord, Origin, dead_letter_topic, retry_topic
from raftlog.records.reader import StoredRecord
from raftlog.wire import media_types
from raftlog.wire import records as record_operations
from tests.helpers.http_server import HttpServer, Json, Reply

DEAD, RETRY = dead_letter_topic("orders", "mail"), retry_topic("orders", "mail")
PATH = "/v1/dead-letters/orders/mail"


def letter(
    offset: int,
    *,
    partition: int = 0,
    key: bytes | None = b"u1",
    value: bytes | None = b"v",
    reason: str = "ValueError: no such user",
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> FailedRecord:
    """The record of ``orders`` at an offset, which failed five times."""
    return FailedRecord(
        origin=Origin("orders", partition, offset),
        key=key,
        value=value,
        headers=headers,
        timestamp_ms=1_000 + offset,
        attempts=5,
        reason=reason,
        failed_ms=2_000 + offset,
    )


def batch(*records: FailedRecord | Record, producer_id: int = -1) -> bytes:
    """A batch of dead letters, tombstones and foreign records; the first of its producer, if it has one."""
    plain = [each.as_dead_letter() if isinstance(each, FailedRecord) else each for each in records]
    number = min(producer_id, 0)
    return build_batch(
        plain,
        codec=Codec.NONE,
        timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=number,
        base_sequence=number,
    )


def stored(record: FailedRecord | Record, offset: int) -> StoredRecord:
    """The record as a fetch has it."""
    plain = record.as_dead_letter() if isinstance(record, FailedRecord) else record
    return StoredRecord(offset, plain.timestamp_ms or 0, plain.key, plain.value, plain.headers)


async def make_topics(server: HttpServer, partitions: int = 1, *, retry_partitions: int = 0) -> None:
    """The two topics of group ``mail`` for topic ``orders``."""
    await server.topic(DEAD, partitions, cleanup_policy="compact", message_timestamp_type="CreateTime")
    await server.topic(RETRY, retry_partitions or partitions, message_timestamp_type="CreateTime")


async def add(server: HttpServer, *records: FailedRecord | Record, partition: int = 0) -> None:
    """Append records to a partition of the dead-letter topic, in one batch."""
    path = record_operations.FETCH.at(topic=DEAD, partition=partition)
    sent = {"Content-Type": media_types.BATCH}
    reply = await server.call("POST", path, batch(*records), sent)
    assert reply.status == 200, reply


def rows(reply: Reply) -> list[Json]:
    """The items of a response."""
    assert reply.status == 200, reply.body
    items = reply.json["items"]
    assert isinstance(items, list)
    return items


def offsets_of(reply: Reply) -> list[int]:
    """The offsets of the origins of a response's items."""
    found = [row["origin"] for row in rows(reply)]
    return [int(str(origin["offset"])) for origin in found if isinstance(origin, dict)]


async def open_offsets(server: HttpServer, query: str = "") -> list[int]:
    """The offsets of the origins of all open dead letters, page by page."""
    found, cursor = list[int](), ""
    while True:
        reply = await server.get(f"{PATH}?{query}{cursor}")
        found += offsets_of(reply)
        if reply.json["next_page_token"] is None:
            return found
        cursor = f"&page_token={reply.json['next_page_token']}"


def ids(offsets: Sequence[int], partition: int = 0) -> list[str]:
    """The ids of dead letters by the offsets of their origins."""
    return [f"orders/{partition}/{offset}" for offset in offsets]
