"""Topics to fetch from over HTTP, and the records of a response."""

from __future__ import annotations

import msgspec

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
