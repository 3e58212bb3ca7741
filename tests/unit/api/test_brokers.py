"""Brokers over HTTP: how they are admitted and removed, and plans that move replicas between them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from msgspec import structs

from broker.join_tokens import LIFETIME_MS
from partitions.metadata.features import NEWEST
from partitions.metadata.move_planner import MoveReplicas
from raftlog.types import NodeId
from raftlog.wire.joining import AdmitBroker, BrokerAdmitted, read_token, signed, with_proof
from tests.helpers.fake_controller import FakeController
from tests.helpers.fake_services import SECRET
from tests.helpers.http_server import HttpServer, Reply, served

OTHER = b"the secret of another cluster..."


async def token_of(server: HttpServer) -> str:
    made = await server.post("/v1/cluster/join-tokens")
    assert made.status == 201
    return str(made.json["token"])


def request_with(token: str, *, number: int = 1, secret: bytes = SECRET, **fields: object) -> AdmitBroker:
    plain = AdmitBroker(
        token=token,
        proof="0" * 64,
        admission_id=f"{number:032x}",
        host="127.0.0.1",
        port=9100 + number,
        http=f"http://127.0.0.1:{8000 + number}",
    )
    return with_proof(structs.replace(plain, **fields), secret)


async def asked(server: HttpServer, request: AdmitBroker) -> Reply:
    return await server.post("/v1/brokers", msgspec.json.encode(request), Content_Type="application/json")


# requirement: F2
@served()
async def test_a_broker_with_token_and_secret_is_admitted_with_its_peers(server: HttpServer) -> None:
    token = await token_of(server)
    assert read_token(token).urls[0] == "http://127.0.0.1:7070"
    reply = await asked(server, request_with(token))
    assert (reply.status, reply.headers["location"]) == (201, "/v1/brokers/4")
    body = msgspec.json.decode(reply.body, type=BrokerAdmitted)
    assert (body.broker_id, body.cluster_id) == (4, "test")
    assert [(peer.broker_id, peer.port) for peer in body.peers] == [
        (1, 9001),
        (2, 9002),
        (3, 9003),
        (4, 9101),
    ]
    again = await asked(server, request_with(token))
    assert again.body == reply.body, "an answer that was lost is given again"
    assert (await server.get("/v1/brokers/4")).json["alive"] is False
    other = await asked(server, request_with(token, number=2))
    assert other.json["broker_id"] == 5, "a token is for any number of brokers, for an hour"


@served()
async def test_without_the_secret_nobody_gets_in(server: HttpServer) -> None:
    token = await token_of(server)
    right = request_with(token)
    for wrong in (
        request_with(token, secret=OTHER),
        structs.replace(right, proof="0" * 64),
        structs.replace(right, host="127.0.0.9"),  # a request that was changed on its way
        request_with(signed(read_token(token), OTHER)),
    ):
        reply = await asked(server, wrong)
        assert (reply.status, reply.code) == (403, "join_refused")
    assert NodeId(4) not in server.cluster.controller.image.brokers


@served()
async def test_a_token_of_another_cluster_or_of_yesterday_is_refused(server: HttpServer) -> None:
    token = read_token(await token_of(server))
    other = signed(structs.replace(token, cluster_id="another"), SECRET)
    reply = await asked(server, request_with(other))
    assert (reply.status, reply.code) == (403, "join_refused")
    assert "this is cluster 'test'" in str(reply.json["detail"])
    old = signed(structs.replace(token, expires_at=token.expires_at - 2 * LIFETIME_MS), SECRET)
    reply = await asked(server, request_with(old))
    assert "has expired" in str(reply.json["detail"])


@served()
async def test_an_id_or_an_address_in_use_is_a_conflict(server: HttpServer) -> None:
    token = await token_of(server)
    for fields in ({"broker_id": 3}, {"broker_id": 3, "replace": True}, {"port": 9002}):
        reply = await asked(server, request_with(token, **fields))
        assert (reply.status, reply.code) == (409, "conflict")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": "0.0.0.0"}, "host"),
        ({"host": "::"}, "host"),
        ({"host": "a b"}, "host"),
        ({"host": "log4.example"}, "host"),  # the others are on loopback
        ({"http": "log4:7070"}, "http"),
        ({"http": "http://log4:7070/path"}, "http"),
        ({"broker_id": 1 << 40}, "broker_id"),
    ],
)
@served()
async def test_what_can_never_work_is_refused_with_the_field(
    server: HttpServer, fields: dict[str, object], named: str
) -> None:
    reply = await asked(server, request_with(await token_of(server), **fields))
    assert reply.status == 422
    assert named in f"{reply.json.get('field')} {reply.json['detail']}"


@served()
async def test_a_misspelt_option_is_refused(server: HttpServer) -> None:
    body = structs.asdict(request_with(await token_of(server))) | {"repalce": True}
    assert (await server.post("/v1/brokers", body)).status == 422


@served()
async def test_what_is_no_token_is_refused_with_the_remedy(server: HttpServer) -> None:
    reply = await asked(server, request_with("not a token"))
    assert (reply.status, reply.code) == (422, "invalid_request")
    assert "raftlog cluster token" in str(reply.json["detail"])


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
async def test_a_removed_broker_leaves_all_lists(server: HttpServer) -> None:
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
        assert "removed permanently" in answer.json["detail"]


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
async def test_a_broker_is_not_drained_where_others_cannot_hold_a_topic(server: HttpServer) -> None:
    assert (await server.post("/v1/brokers/1:drain", None)).status == 200
    refused = await server.post("/v1/brokers/2:drain", None)
    assert (refused.status, refused.code, refused.json["topics"]) == (409, "conflict", ["orders"])
    assert "replication factor 3; first recommission or start these brokers" in refused.json["detail"]


PLAN = "/v1/cluster/plan"
REBALANCE = f"{PLAN}:start"


async def uneven(server: HttpServer, level: int = NEWEST) -> dict[str, object]:
    """Four partitions on brokers 1 to 3 of four; the plan of a dry run."""
    image = replace(controller(server).image, feature_level=level)
    three = {broker: info for broker, info in image.brokers.items() if broker != 4}
    controller(server).image = replace(image, brokers=three)
    await server.topic("orders", partitions=4)
    controller(server).image = replace(controller(server).image, brokers=image.brokers)
    proposed = await server.post(f"{REBALANCE}?dry_run=true", None)
    assert proposed.status == 200
    found: dict[str, object] = proposed.json
    return found


@served(brokers=4)
async def test_exactly_the_plan_of_the_dry_run_is_carried_out(server: HttpServer) -> None:
    plan = await uneven(server)
    assert plan["plan"] is None
    assert (await server.get(PLAN)).json["moves"] == [], "nothing has begun"
    begun = await server.post(REBALANCE, plan)
    assert begun.status == 202
    moves = plan["moves"]
    assert isinstance(moves, list)
    assert [move["target"] for move in begun.json["moves"]] == [move["target"] for move in moves]
    assert {move["state"] for move in begun.json["moves"]} == {"pending"}
    assert (await server.get(PLAN)).json["plan"] == begun.json["plan"]


@served(brokers=4)
async def test_a_second_plan_is_refused_until_the_first_is_cancelled(server: HttpServer) -> None:
    plan = await uneven(server)
    assert (await server.post(f"{PLAN}:cancel", None)).code == "conflict"
    assert (await server.post(REBALANCE, None)).status == 202
    second = await server.post(REBALANCE, plan)
    assert (second.status, second.code) == (409, "conflict")
    assert (await server.post(f"{PLAN}:cancel", None)).status == 200
    assert (await server.get(PLAN)).json["plan"] is None
    assert (await server.post(REBALANCE, plan)).status == 202


@served(brokers=4)
async def test_a_plan_that_is_out_of_date_is_refused(server: HttpServer) -> None:
    plan = await uneven(server)
    moves = plan["moves"]
    assert isinstance(moves, list)
    first = moves[0]
    request = MoveReplicas("orders", first["partition"], tuple(reversed(first["replicas"])))
    await server.cluster.services.admin.change_replicas(request, 1000)
    late = await server.post(REBALANCE, plan)
    assert (late.status, late.code) == (412, "precondition_failed")


@served(brokers=4)
async def test_plans_that_nobody_could_carry_out_are_refused_by_field(server: HttpServer) -> None:
    plan = await uneven(server)
    moves = plan["moves"]
    assert isinstance(moves, list)
    fewer = {**plan, "moves": [{**moves[0], "target": moves[0]["target"][:2]}]}
    refused = await server.post(REBALANCE, fewer)
    assert (refused.status, refused.code) == (422, "invalid_request")
    assert "keeps the number" in refused.json["detail"]
    for wrong in ({"moves": [{}]}, {"moves": []}, {"move": []}, {"moves": 7}):
        assert (await server.post(REBALANCE, wrong)).status == 422


@served(brokers=4)
async def test_without_the_feature_level_no_plan_begins(server: HttpServer) -> None:
    plan = await uneven(server, level=1)
    refused = await server.post(REBALANCE, plan)
    assert (refused.status, refused.code) == (409, "conflict")
    assert "needs feature level 2" in refused.json["detail"]
