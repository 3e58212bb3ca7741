"""Reads over HTTP step over the records that compaction has removed."""

from __future__ import annotations

from raftlog.records.compaction import gap_batch, retain
from raftlog.types import TopicPartition
from tests.helpers.fetching import PATH, offsets_of
from tests.helpers.http_server import HttpServer, served

ORDERS_0 = TopicPartition("orders", 0)
KEPT = [4, 6, 20]


async def compacted(server: HttpServer) -> None:
    """Offsets 0..20, of which three are left: a gap batch, a batch with gaps, a gap batch, a whole batch."""
    await server.topic("orders", 1, **{"cleanup.policy": "compact"})
    for count in (3, 5, 12, 1):
        records = [{"key": "k", "value": number} for number in range(count)]
        assert (await server.post(PATH, {"records": records})).status == 200
    log = server.cluster.gateway.log(ORDERS_0)
    assert [batch.base_offset for batch in log.batches] == [0, 3, 8, 20]
    log.batches[0] = gap_batch(0, 2, 1, None)
    log.batches[1] = retain(log.batches[1], {4, 6})
    log.batches[2] = gap_batch(8, 19, 1, None)


@served(prepare=compacted)
async def test_a_fetch_from_any_offset_goes_on_at_the_next_record(server: HttpServer) -> None:
    for offset in range(21):
        got = await server.get(f"{PATH}?offset={offset}&max_bytes=1")
        assert got.status == 200
        assert offsets_of(got)[0] == min(kept for kept in KEPT if kept >= offset)
        whole = await server.get(f"{PATH}?offset={offset}")
        assert offsets_of(whole) == [kept for kept in KEPT if kept >= offset]
        assert whole.headers["raftlog-next-offset"] == "21"
        one = await server.get(f"{PATH}?offset={offset}&limit=1")
        assert offsets_of(one) == offsets_of(whole)[:1]
    assert (await server.get(f"{PATH}?offset=21")).status == 204


@served(prepare=compacted)
async def test_a_message_at_a_removed_offset_is_not_found(server: HttpServer) -> None:
    for offset in range(21):
        got = await server.get(f"/v1/topics/orders/messages/0/{offset}")
        if offset in KEPT:
            assert (got.status, got.json["offset"]) == (200, offset)
        else:
            assert (got.status, got.code) == (404, "record_not_found")


@served(prepare=compacted)
async def test_a_record_without_a_key_is_refused_with_its_place(server: HttpServer) -> None:
    got = await server.post(PATH, {"records": [{"key": "k", "value": 1}, {"value": 2}]})
    assert (got.status, got.code) == (422, "invalid_record")
    assert "cleanup.policy" in str(got.json["detail"])
    assert got.json["errors"] == ["/records/1/key: is missing"]
