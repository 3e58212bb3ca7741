"""Offsets of consumer groups in transactions, over HTTP."""

from __future__ import annotations

from tests.helpers.async_tests import in_real_time
from tests.helpers.http_server import HttpServer, Reply, serve

TRANSACTIONS = "/v1/transactions"
OFFSETS = "/v1/groups/copiers/offsets"


async def opened(server: HttpServer, name: str = "copy-1", **more: object) -> str:
    """The id of a new transaction."""
    answer = await server.post(TRANSACTIONS, {"transactional_id": name, **more})
    assert answer.status == 201, answer.json
    return str(answer.json["id"])


async def topic(server: HttpServer) -> None:
    """With five records in partition 0."""
    await server.topic()
    records = {"records": [{"value": number, "partition": 0} for number in range(5)]}
    assert (await server.call("POST", "/v1/topics/orders/records", records, {})).status == 200


async def added(server: HttpServer, transaction: str, offset: int, **more: object) -> Reply:
    """Add one offset of partition 0."""
    body = {"group": "copiers", "offsets": [{"topic": "orders", "partition": 0, "offset": offset}], **more}
    return await server.post(f"{TRANSACTIONS}/{transaction}:add-offsets", body)


async def committed(server: HttpServer) -> list[tuple[int, int]]:
    """Partitions and their committed offsets."""
    found = (await server.get(f"{OFFSETS}?lag=false")).json
    return [(item["partition"], item["committed_offset"]) for item in found["items"]]


# requirement: D3
@in_real_time
async def test_offsets_are_committed_with_their_transaction() -> None:
    async with serve() as server:
        await topic(server)
        one = await opened(server)
        for offset in (2, 3):
            answer = await added(server, one, offset)
            assert (answer.status, answer.json) == (200, {"id": one, "group": "copiers"})
        newest = (await server.get(f"{TRANSACTIONS}/copy-1")).json
        assert (newest["state"], newest["groups"], newest["partitions"]) == ("ongoing", ["copiers"], [])
        assert await committed(server) == []
        pending = (await server.get(OFFSETS)).json["pending"]
        assert pending == [{"topic": "orders", "partition": 0, "offset": 3, "transaction": one}]
        ended = await server.post(f"{TRANSACTIONS}/{one}:commit")
        assert ended.json["outcome"] == "committed"
        assert await committed(server) == [(0, 3)]
        assert (await server.get(OFFSETS)).json["pending"] == []


# requirement: D3
@in_real_time
async def test_an_abort_drops_them() -> None:
    async with serve() as server:
        await topic(server)
        one = await opened(server)
        await added(server, one, 3)
        ended = await server.post(f"{TRANSACTIONS}/{one}:abort")
        assert await committed(server) == []
        late = await added(server, one, 4)
        assert (late.status, late.code) == (409, "transaction_aborted")
        following = str(ended.json["next_id"])
        assert (await added(server, following, 2)).status == 200
        await server.post(f"{TRANSACTIONS}/{following}:commit")
        assert await committed(server) == [(0, 2)]
