"""One JSON fetch may read several times, and retention may delete records between two of its reads."""

from __future__ import annotations

import pytest

from partitions.values import FetchRequest, FetchResult
from raftlog.types import TopicPartition
from tests.helpers.fetching import PATH, fill, offsets_of
from tests.helpers.http_server import HttpServer, served

ORDERS_0 = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("offset", "status"),
    [("earliest", 200), ("-9", 200), ("-1", 200), ("timestamp:1", 200), ("0", 410)],
)
@served(prepare=fill)
async def test_only_who_names_an_offset_is_told_that_it_is_deleted(
    server: HttpServer, offset: str, status: int
) -> None:
    """A control record comes first, so every one of these fetches has to go on reading behind it."""
    # requirement: C2
    gateway, fetch, has_read = server.cluster.gateway, server.cluster.gateway.fetch, False
    gateway.change_leader(ORDERS_0)

    async def before_retention(target: TopicPartition, request: FetchRequest) -> FetchResult:
        nonlocal has_read
        if has_read:
            return await fetch(target, request)
        has_read = True
        result = await fetch(target, request)
        for value in ("deleted", "kept"):
            await server.post(PATH, {"records": [{"value": value}]})
        gateway.cut(ORDERS_0, gateway.log(ORDERS_0).end - 1)
        return result

    gateway.fetch = before_retention  # type: ignore[method-assign]
    got = await server.get(f"{PATH}?offset={offset}&wait=50ms")
    assert got.status == status, got.body
    if status == 200:
        assert offsets_of(got) == [gateway.log(ORDERS_0).end - 1]
