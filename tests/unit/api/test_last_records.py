"""``offset=-N``: the newest N records of users, and never older ones in their place."""

from __future__ import annotations

import pytest

from raftlog.types import TopicPartition
from tests.helpers.fetching import PATH, fill, offsets_of
from tests.helpers.http_server import HttpServer, served

ORDERS_0 = TopicPartition("orders", 0)
LARGE = "x" * 1_000


@pytest.mark.parametrize(
    ("query", "offsets", "next_offset"),
    [
        ("offset=-1", [3], 8),
        ("offset=-2", [2, 3], 8),
        ("offset=-9", [0, 1, 2, 3], 8),
        ("offset=-2&limit=1", [2], 3),
        ("offset=-1&max_bytes=2000", [3], 8),
        ("offset=-3&max_bytes=2000", [1], 2),  # begins with the third to last; the rest follows at 2
        ("offset=-1&max_bytes=500", [3], 8),
        ("offset=-2&max_bytes=500", [2], 3),
    ],
)
@served()
async def test_control_records_do_not_take_the_place_of_the_newest(
    server: HttpServer, query: str, offsets: list[int], next_offset: int
) -> None:
    # requirement: C2
    await fill(server, LARGE, LARGE, LARGE, "small")
    for _ in range(4):
        server.cluster.gateway.change_leader(ORDERS_0)
    got = await server.get(f"{PATH}?{query}")
    assert got.status == 200
    assert (offsets_of(got), got.json["next_offset"]) == (offsets, next_offset)
    assert got.json["up_to_date"] is (next_offset == 8)
