"""Leaders and replicas are moved over HTTP, and the last resort asks for its phrase."""

from __future__ import annotations

import pytest

from raftlog.types import NodeId
from raftlog.wire import paths
from tests.helpers.fake_admin import FakeAdmin
from tests.helpers.http_server import HttpServer, served

ORDERS = "/v1/topics/orders/partitions/0"
RECOVER = "/v1/partitions/orders/0:unsafe-recover"


def admin(server: HttpServer) -> FakeAdmin:
    found = server.cluster.services.admin
    assert isinstance(found, FakeAdmin)
    return found


@served(partitions=3)
async def test_leadership_moves_to_the_broker_named_or_to_any(server: HttpServer) -> None:
    moved = await server.post(f"{ORDERS}:transfer-leadership", {"to": 3})
    assert (moved.status, moved.json) == (
        200,
        {"topic": "orders", "partition": 0, "leader": 3, "term": 8},
    )
    for body in ({}, None):
        assert (await server.post(f"{ORDERS}:transfer-leadership", body)).status == 200
    assert (await server.get(ORDERS)).json["leader"] != 3


@served(partitions=3)
async def test_a_transfer_that_cannot_be_says_why(server: HttpServer) -> None:
    stranger = await server.post(f"{ORDERS}:transfer-leadership", {"to": 9})
    assert (stranger.status, stranger.code) == (422, "invalid_request")
    admin(server).dead.add(NodeId(2))
    dead = await server.post(f"{ORDERS}:transfer-leadership", {"to": 2})
    assert (dead.status, dead.code) == (409, "conflict")
    admin(server).unmoved = True
    late = await server.post(f"{ORDERS}:transfer-leadership", {"to": 3})
    assert (late.status, late.code) == (504, "leadership_not_moved")


# requirement: F2
@served(brokers=5, partitions=3)
async def test_a_target_is_taken_and_shown_and_waited_for(server: HttpServer) -> None:
    assert (await server.get(ORDERS)).json["reassignment"] is None
    taken = await server.post(f"{ORDERS}:add-replica", {"broker_id": 4})
    assert taken.status == 202
    assert taken.json["reassignment"] == {
        "target": [1, 2, 3, 4],
        "state": "preparing",
        "caught_up_percent": 0,
    }
    fewer = await server.post(f"{ORDERS}:remove-replica", {"broker_id": 1})
    assert fewer.json["reassignment"]["target"] == [2, 3, 4]  # type: ignore[index]
    done = await server.post(f"{ORDERS}:set-replicas?wait=10s", {"replicas": [4, 5, 2]})
    assert (done.status, done.json["replicas"], done.json["reassignment"]) == (200, [4, 5, 2], None)


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("add-replica", {"broker_id": 77}, 422),
        ("add-replica", {"broker_id": 2}, 422),
        ("add-replica", {"broker_id": 0}, 422),
        ("add-replica", {"broker_id": "4"}, 422),
        ("add-replica", {"broker_id": 4.5}, 422),
        ("add-replica", {"broker_id": None}, 422),
        ("add-replica", {"broker_id": 10**30}, 422),
        ("add-replica", b'{"broker_id": NaN}', 422),
        ("add-replica", {}, 422),
        ("add-replica", {"broker_id": 4, "force": True}, 422),
        ("remove-replica", {"broker_id": 4}, 422),
        ("set-replicas", {"replicas": []}, 422),
        ("set-replicas", {"replicas": [1, 1, 2]}, 422),
        ("set-replicas", {"replicas": [1, 2, 3, 4, 5, 6, 7, 8]}, 422),
        ("set-replicas", {"replicas": "1,2,3"}, 422),
        ("set-replicas", [1, 2, 3], 422),
        ("set-replicas?wait=soon", {"replicas": [1]}, 422),
        ("set-replicas?force=yes", {"replicas": [1]}, 422),
        ("transfer-leadership", {"to": -1}, 422),
        ("transfer-leadership", {"to": True}, 422),
    ],
)
@served(brokers=4, partitions=3)
async def test_what_makes_no_sense_changes_nothing(
    server: HttpServer, action: str, body: object, status: int
) -> None:
    before = server.cluster.controller.image
    path, mark, query = action.partition("?")
    answer = await server.call(
        "POST", f"{ORDERS}:{path}{mark}{query}", body, {"Content-Type": "application/json"}
    )
    assert answer.status == status
    assert answer.code == "invalid_request"
    assert server.cluster.controller.image is before


@served(partitions=3)
async def test_topics_partitions_and_actions_that_are_not_there_are_told(server: HttpServer) -> None:
    body = {"broker_id": 3}
    assert (await server.post("/v1/topics/none/partitions/0:add-replica", body)).code == "topic_not_found"
    assert (
        await server.post("/v1/topics/orders/partitions/9:add-replica", body)
    ).code == "partition_not_found"
    assert (await server.post(f"{ORDERS}:explode", body)).code == "method_not_allowed"


# requirement: F6
@served(partitions=3)
async def test_the_last_resort_estimates_first_and_takes_its_phrase_only(server: HttpServer) -> None:
    needless = await server.post(RECOVER, {"confirm": "anything"})
    assert (needless.status, needless.code) == (409, "conflict")
    admin(server).dead |= {NodeId(2), NodeId(3)}
    estimate = await server.post(RECOVER, None)
    assert (estimate.status, estimate.code) == (409, "conflict")
    phrase = estimate.json["confirm"]
    assert phrase == "recover orders/0 from broker 1 without brokers 2, 3"
    assert "offset 41" in str(estimate.json["detail"])
    assert (await server.post(RECOVER, {"confirm": "yes"})).status == 409
    done = await server.post(RECOVER, {"confirm": phrase})
    assert (done.status, done.json["replicas"]) == (200, [1])
    assert done.json["unsafe_recoveries"] == [
        {"survivor": 1, "lost": [2, 3], "last_offset": 41, "committed_offset": 40, "at": 1000}
    ]
    assert paths.of_partition(paths.UNSAFE_RECOVER, "orders", 0) == RECOVER
