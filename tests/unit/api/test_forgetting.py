"""Removing a broker over HTTP: what is refused, and that a repeated request is answered alike."""

from __future__ import annotations

from dataclasses import replace

from raftlog.types import NodeId
from tests.helpers.fake_controller import FakeController
from tests.helpers.http_server import HttpServer, served

FORGET = "/v1/brokers/{}:forget"


def controller(server: HttpServer) -> FakeController:
    found = server.cluster.services.controller
    assert isinstance(found, FakeController)
    return found


def down(server: HttpServer, broker: int) -> None:
    known = controller(server)
    stopped = replace(known.image.brokers[NodeId(broker)], alive=False)
    known.image = replace(known.image, brokers={**known.image.brokers, NodeId(broker): stopped})


# requirement: F3
@served(brokers=4)
async def test_a_removed_broker_leaves_all_lists_and_a_repeated_request_changes_nothing(
    server: HttpServer,
) -> None:
    assert (await server.post("/v1/brokers/4:decommission", None)).status == 200
    down(server, 4)
    first = await server.post(FORGET.format(4), None)
    assert (first.status, first.json["broker_id"]) == (200, 4)
    again = await server.post(FORGET.format(4), None)
    assert (again.status, again.json) == (200, first.json)
    listed = (await server.get("/v1/brokers")).json["items"]
    assert [one["broker_id"] for one in listed] == [1, 2, 3]
    for path in ("/v1/brokers/4", "/v1/brokers/4:recommission", "/v1/brokers/4:drain"):
        answer = await (server.get(path) if path.endswith("4") else server.post(path, None))
        assert (answer.status, answer.code) == (404, "broker_not_found")
        assert "removed for good" in answer.json["detail"]


@served(brokers=4)
async def test_a_broker_that_is_alive_has_replicas_or_is_unknown_is_not_removed(server: HttpServer) -> None:
    alive = await server.post(FORGET.format(4), None)
    assert (alive.status, alive.code) == (409, "conflict")
    assert "stop its process" in alive.json["detail"]
    await server.topic("orders", partitions=1)
    down(server, 1)
    held = await server.post(FORGET.format(1), None)
    assert (held.status, held.json["replicas"]) == (409, 1)
    assert "orders/0" in held.json["detail"]
    for unknown in ("9", "four", "-1"):
        assert (await server.post(FORGET.format(unknown), None)).code == "broker_not_found"


# requirement: F3
@served(brokers=3, partitions=3)
async def test_a_second_broker_is_not_drained_where_the_others_cannot_hold_a_topic(
    server: HttpServer,
) -> None:
    assert (await server.post("/v1/brokers/1:drain", None)).status == 200
    refused = await server.post("/v1/brokers/2:drain", None)
    assert (refused.status, refused.code, refused.json["topics"]) == (409, "conflict", ["orders"])
    assert "replication factor 3; recommission or start these brokers first" in refused.json["detail"]
