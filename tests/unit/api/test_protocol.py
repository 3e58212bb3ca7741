"""One protocol for producers, consumers and members of groups, which refuses damaged bytes."""

from __future__ import annotations

import pytest

from raftlog.records.batch import HEADER_BYTES, check_batch, split_batches
from raftlog.wire import media_types
from tests.helpers.http_server import HttpServer, served
from tests.helpers.orders import batch_of, values_of

RECORDS = "/v1/topics/orders/partitions/0/records"
GROUP = "/v1/groups/g"
MEMBER = f"{GROUP}/members/a"
BINARY = {"Content-Type": media_types.BATCH}


# requirement: A9
@served(partitions=1)
async def test_a_client_produces_consumes_and_is_a_member_of_a_group(server: HttpServer) -> None:
    values = [b"x" * 1_000] * 1_000  # a megabyte in one request
    produced = await server.call("POST", RECORDS, batch_of(*values[:500]) + batch_of(*values[500:]), BINARY)
    assert (produced.status, produced.json["record_count"]) == (200, 1_000)
    fetched = await server.get(f"{RECORDS}?offset=0&max_bytes=4000000", Accept=media_types.BATCH)
    assert values_of(fetched.body) == values
    for batch in split_batches(fetched.body):
        check_batch(batch)
    joined = await server.post(f"{GROUP}/members", {"topics": ["orders"], "member_id": "a"})
    generation = {"generation": joined.json["generation"]}
    synced = await server.post(f"{MEMBER}:sync", {**generation, "plan": "auto"})
    assert synced.json["assignment"] == [{"topic": "orders", "partitions": [0]}]
    beat = await server.post(f"{MEMBER}:heartbeat", generation)
    assert beat.json["action"] == "continue"
    place = {"topic": "orders", "partition": 0, "offset": 1_000}
    commit = {**generation, "member_id": "a", "offsets": [place]}
    assert (await server.call("PUT", f"{GROUP}/offsets", commit)).status == 204
    assert (await server.call("DELETE", MEMBER)).status == 204


# requirement: A9
@pytest.mark.parametrize("position", [17, 21, 24, 43, HEADER_BYTES, -1])
@served(partitions=1)
async def test_a_batch_with_a_flipped_bit_is_refused_wherever_it_is(
    server: HttpServer, position: int
) -> None:
    damaged = bytearray(batch_of(b"value"))
    damaged[position] ^= 1
    refused = await server.call("POST", RECORDS, bytes(damaged), BINARY)
    assert (refused.status, refused.code) == (422, "corrupt_batch")
    assert (await server.get(f"{RECORDS}?offset=0")).status == 204
