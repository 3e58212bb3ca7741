"""Topics to fetch from over HTTP, and the records of a response."""

from __future__ import annotations

import msgspec

from partitions.values import FetchResult
from raftlog.types import Offset, Term
from tests.helpers.http_server import HttpServer, Reply

PATH = "/v1/topics/orders/partitions/0/records"


def records_of(reply: Reply) -> list[dict[str, object]]:
    """The records of a response."""
    return msgspec.convert(reply.json["records"], list[dict[str, object]])


def offsets_of(reply: Reply) -> list[object]:
    """Their offsets."""
    return [record["offset"] for record in records_of(reply)]


async def fill(server: HttpServer, *values: object, **config: int | str) -> None:
    """A topic of one partition with a record for each value, each in its own batch."""
    await server.topic("orders", 1, **config)
    for value in values:
        assert (await server.post(PATH, {"records": [{"value": value}]})).status == 200


def fetch_result(
    data: bytes | memoryview, next_offset: int, *, offset: int = 0, end: int = -1
) -> FetchResult:
    """A result of a partition that ends at ``next_offset`` unless ``end`` is given."""
    last = Offset(next_offset if end < 0 else end)
    return FetchResult(
        offset=Offset(offset),
        data=data,
        next_offset=Offset(next_offset),
        log_start_offset=Offset(0),
        high_watermark=last,
        last_stable_offset=last,
        end=last,
        leader_epoch=Term(1),
    )
