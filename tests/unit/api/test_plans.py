"""Plans over HTTP: a dry run, exactly that plan, one that is out of date, a second one, and its end."""

from __future__ import annotations

from dataclasses import replace

from partitions.metadata.features import NEWEST
from partitions.metadata.move_planner import MoveReplicas
from tests.helpers.fake_controller import FakeController
from tests.helpers.http_server import HttpServer, served

PLAN = "/v1/cluster/plan"
REBALANCE = f"{PLAN}:rebalance"


def controller(server: HttpServer) -> FakeController:
    found = server.cluster.services.controller
    assert isinstance(found, FakeController)
    return found


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
