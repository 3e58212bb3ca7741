"""``records:archived-up-to`` over HTTP."""

from __future__ import annotations

import pytest

from raftlog.errors import CommitUnknown
from raftlog.types import TopicPartition
from tests.helpers.http_server import HttpServer, served

PATH = "/v1/topics/orders/records:archived-up-to"
PARTITION = "/v1/topics/orders/partitions/0"


# requirement: A8
@served(partitions=3)
async def test_the_offset_is_shown_and_goes_back_only_on_request(server: HttpServer) -> None:
    await server.post(f"{PARTITION}/records", {"records": [{"value": number} for number in range(5)]})
    for body, expected in (
        ({"offset": 3}, 3),
        ({"offset": 2}, 3),
        ({"offset": 2, "allow_lower": True}, 2),
    ):
        found = await server.post(PATH, {"partition": 0, **body})
        assert (found.status, found.json) == (200, {"partition": 0, "archived_up_to": expected})
        assert (await server.get(PARTITION)).json["archived_up_to"] == expected


# requirement: A8
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"partition": 0, "offset": 1}, "offset"),  # above the end
        ({"partition": 0, "offset": -1}, "/offset"),
        ({"partition": 0}, "/offset"),
        ({"partition": -1, "offset": 0}, "/partition"),
        ({"partition": 0, "offset": 0, "force": True}, "/force"),
    ],
)
@served(partitions=3)
async def test_a_wrong_field_is_named(server: HttpServer, body: object, field: str) -> None:
    refused = await server.post(PATH, body)
    assert (refused.status, refused.json["field"]) == (422, field)


# requirement: A8
@served(partitions=3)
async def test_unknown_topics_partitions_and_outcomes_are_reported(server: HttpServer) -> None:
    assert (await server.post(PATH, {"partition": 99, "offset": 0})).code == "partition_not_found"
    missing = PATH.replace("orders", "none")
    assert (await server.post(missing, {"partition": 0, "offset": 0})).code == "topic_not_found"
    server.cluster.gateway.faults[TopicPartition("orders", 0)] = CommitUnknown("repeat")
    assert (await server.post(PATH, {"partition": 0, "offset": 0})).code == "replication_timeout"
