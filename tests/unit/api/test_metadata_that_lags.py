"""A broker that has just started, or that hears of news late, does not deny what others know."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from api.resources.dead_letter_scan import Cursor
from partitions.metadata.image import MetadataImage
from raftlog.types import NodeId
from tests.helpers.http_server import HttpServer, Json, served


@served(partitions=3)
async def test_a_topic_that_was_acknowledged_elsewhere_is_never_denied(server: HttpServer) -> None:
    # requirement: T2
    controller = server.cluster.controller
    controller.unheard = controller.image
    controller.image = replace(controller.image, topics={})
    stored = await server.post("/v1/topics/orders/records", {"records": [{"value": "a"}]})
    assert stored.status == 200


@served(partitions=3)
async def test_a_partition_that_was_added_elsewhere_is_never_denied(server: HttpServer) -> None:
    # requirement: F4
    controller = server.cluster.controller
    before = controller.image
    await server.post("/v1/topics/orders/partitions:add", {"count": 1})
    controller.image, controller.unheard = before, controller.image
    stored = await server.post("/v1/topics/orders/partitions/3/records", {"records": [{"value": "a"}]})
    assert stored.status == 200
    controller.image, controller.unheard = before, controller.image
    commit = {"offsets": [{"topic": "orders", "partition": 3, "offset": 1}]}
    assert (await server.call("PUT", "/v1/groups/mail/offsets", commit)).status == 204
    assert (await server.get("/v1/topics/orders/partitions/4")).code == "partition_not_found"


async def with_a_partition_that_is_not_heard_of(server: HttpServer) -> None:
    """Another broker has added partition 3 of ``orders``."""
    controller = server.cluster.controller
    before = controller.image
    await server.post("/v1/topics/orders/partitions:add", {"count": 1})
    controller.image, controller.unheard = before, controller.image


# requirement: F6
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", ":drain"), ("POST", ":decommission")],
)
@served()
async def test_a_broker_that_joined_elsewhere_is_never_denied(
    server: HttpServer, method: str, path: str
) -> None:
    controller = server.cluster.controller
    controller.unheard = controller.image
    known = {number: broker for number, broker in controller.image.brokers.items() if number != 3}
    controller.image = replace(controller.image, brokers=known)
    assert (await server.call(method, f"/v1/brokers/3{path}")).status in (200, 202)
    assert (await server.call(method, f"/v1/brokers/4{path}")).code == "broker_not_found"


# requirement: F4
@served(partitions=3)
async def test_a_page_of_dead_letters_may_be_of_a_partition_that_was_added_elsewhere(
    server: HttpServer,
) -> None:
    await server.topic("orders.mail.dlq", partitions=1)
    controller = server.cluster.controller
    before = controller.image
    await server.post("/v1/topics/orders.mail.dlq/partitions:add", {"count": 1})
    path = "/v1/dead-letters/orders/mail"
    controller.image, controller.unheard = before, controller.image
    assert (await server.get(f"{path}?page_token={Cursor(1, 0)}")).status == 200
    assert (await server.get(f"{path}?page_token={Cursor(2, 0)}")).status == 422


# requirement: F4
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/v1/topics/orders/records",
            {"records": [{"value": 0, "partition": 1}, {"value": 1, "partition": 3}]},
        ),
        ("/v1/transactions:execute", {"records": [{"topic": "orders", "partition": 3, "value": 1}]}),
        (
            "/v1/groups/mail/offsets:reset",
            {"to": "latest", "partitions": [{"topic": "orders", "partitions": [3]}]},
        ),
        (
            "/v1/schedules",
            {"topic": "orders", "cron": "0 3 * * *", "record": {"partition": 3, "value": "x"}},
        ),
    ],
)
@served(partitions=3)
async def test_a_body_may_name_a_partition_that_was_added_elsewhere(
    server: HttpServer, path: str, body: Json
) -> None:
    await with_a_partition_that_is_not_heard_of(server)
    done = await server.post(path, body)
    assert done.status in (200, 201), done
    never = msgspec.json.decode(msgspec.json.encode(body).replace(b"3", b"4"))
    assert (await server.post(path, never)).status in (404, 422)


# requirement: G4
@served(partitions=3)
async def test_committed_offsets_of_a_partition_that_was_added_elsewhere_can_be_reset(
    server: HttpServer,
) -> None:
    await with_a_partition_that_is_not_heard_of(server)
    before = server.cluster.controller.image
    commit = {"offsets": [{"topic": "orders", "partition": 3, "offset": 0}]}
    assert (await server.call("PUT", "/v1/groups/mail/offsets", commit)).status == 204
    server.cluster.controller.image, server.cluster.controller.unheard = (
        before,
        server.cluster.controller.image,
    )
    reset = await server.post("/v1/groups/mail/offsets:reset", {"to": "earliest"})
    assert reset.status == 200, reset


# requirement: A3
@served(partitions=3)
async def test_the_retention_of_a_topic_that_is_not_known_yet_limits_delays(server: HttpServer) -> None:
    accepted = await server.post("/v1/topics/orders/records?delay=1h", {"records": [{"value": 1}]})
    (receipt,) = msgspec.convert(accepted.json["records"], list[Json])
    controller = server.cluster.controller
    controller.unheard = controller.image
    controller.image = replace(controller.image, topics={})
    refused = await server.call("PATCH", f"/v1/delayed/{receipt['delayed_id']}", {"delay": "15d"})
    assert refused.status == 422


@served()
async def test_a_broker_that_cannot_ask_says_that_it_does_not_know(server: HttpServer) -> None:
    server.cluster.controller.leader = None
    unknown = await server.get("/v1/topics/nope")
    assert (unknown.status, unknown.code) == (503, "no_leader")
    assert unknown.json["retryable"] is True


# requirement: F6
@served()
async def test_a_broker_without_metadata_denies_neither_topics_nor_brokers(server: HttpServer) -> None:
    controller = server.cluster.controller
    controller.unheard = controller.image
    controller.image, controller.leader = MetadataImage(), None
    for path in ("/v1/topics", "/v1/brokers", "/v1/brokers/1", "/v1/cluster"):
        asked = await server.get(path)
        assert (asked.status, asked.code) == (503, "no_leader"), path
    controller.leader = NodeId(1)
    assert (await server.get("/v1/brokers/1")).status == 200


# requirement: F2, F6
@served()
async def test_a_cluster_whose_first_controller_has_not_named_it_gives_no_token(server: HttpServer) -> None:
    controller = server.cluster.controller
    named, controller.image = controller.image, MetadataImage()
    for method, path in (("GET", "/v1/cluster"), ("GET", "/v1/topics"), ("POST", "/v1/cluster/join-tokens")):
        asked = await server.call(method, path)
        assert (asked.status, asked.code) == (503, "no_leader"), path
    controller.image = named
    assert (await server.post("/v1/cluster/join-tokens")).status == 201


# requirement: F6, G4
@served(partitions=3)
async def test_committed_offsets_are_shown_although_their_topic_is_not_known_yet(server: HttpServer) -> None:
    """A consumer that is told of none would begin at the end, and skip what it has not read."""
    commit = {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert (await server.call("PUT", "/v1/groups/mail/offsets", commit)).status == 204
    controller = server.cluster.controller
    known, controller.unheard = controller.image, controller.image
    controller.image = replace(known, topics={})
    shown = await server.get("/v1/groups/mail/offsets")
    assert [(row["topic"], row["committed_offset"]) for row in shown.json["items"]] == [("orders", 0)]
    controller.image, controller.leader = replace(known, topics={}), None
    unknown = await server.get("/v1/groups/mail/offsets")
    assert (unknown.status, unknown.code) == (503, "no_leader")


# requirement: G4
@served(partitions=3)
async def test_offsets_of_a_deleted_topic_need_no_controller(server: HttpServer) -> None:
    commit = {"offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert (await server.call("PUT", "/v1/groups/mail/offsets", commit)).status == 204
    assert (await server.call("DELETE", "/v1/topics/orders")).status == 200
    for leader in (NodeId(1), None):
        server.cluster.controller.leader = leader
        shown = await server.get("/v1/groups/mail/offsets")
        assert (shown.status, shown.json["items"]) == (200, [])
